"""Checkpoints: the table of those that are published, and reading and writing their files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
