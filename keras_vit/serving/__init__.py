"""Models in production: exports, and a client of the servers that serve them."""

from keras_vit.core.lazy import make_lazy

__all__ = make_lazy(__name__, {"keras_vit.serving.client": ["BadImageError", "Client"]})
