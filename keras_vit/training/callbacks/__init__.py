"""Callbacks for training: of runs, and for `model.fit` without recipes."""

from keras_vit.core.lazy import make_lazy

__all__ = make_lazy(
    __name__,
    {
        "keras_vit.training.averaging": ["EvaluateAverages"],
        "keras_vit.training.callbacks.measuring": [
            "CheckFinite",
            "LogOptimizer",
            "LogSpeed",
            "NotFiniteError",
        ],
        "keras_vit.training.callbacks.regular": ["MeasureRegularly"],
        "keras_vit.training.callbacks.saving": ["SaveModels", "SaveState"],
        "keras_vit.training.callbacks.stopping": ["StopEarly"],
    },
)
