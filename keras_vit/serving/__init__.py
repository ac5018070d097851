"""Models in production: exports, predictions of many images, and a client of servers."""

from keras_vit.core.lazy import make_lazy

__all__ = make_lazy(
    __name__,
    {
        "keras_vit.serving.client": ["BadImageError", "Client"],
        "keras_vit.serving.loaded": ["preprocess_files"],
        "keras_vit.serving.prediction.predictor": ["Predictor"],
        "keras_vit.serving.runners": ["load_runner"],
    },
)
