"""`keras-vit quickstart`."""
import dataclasses
@dataclasses.dataclass
class Quickstart:
    """x"""
    debug: bool = False
    def run(self): pass
