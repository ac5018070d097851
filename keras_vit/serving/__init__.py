"""Models in production: exports, and a client of what serves them."""

from keras_vit.serving.client import BadImageError, Client

__all__ = ["BadImageError", "Client"]
