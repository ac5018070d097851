"""The paper's experiments as functions: VTAB-1k, studies, sweeps, and tables of results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
