"""Studies: the same training with one thing changed, over several seeds."""

from keras_vit.core.lazy import make_lazy

# Keras and TensorFlow are imported when one of these is used.
__all__ = make_lazy(
    __name__,
    {
        "keras_vit.experiments.studies.plan": ["Plan", "make_plan"],
        "keras_vit.experiments.studies.settings": ["STUDIES", "Setting"],
        "keras_vit.experiments.studies.study": ["FIGURE", "study"],
    },
)
