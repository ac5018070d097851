"""Training by recipes: `train`, the table of recipes, callbacks, losses and optimizers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
