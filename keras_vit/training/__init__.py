"""Training by recipe: `train`, the table of recipes, and what they are made of."""

from keras_vit.core.lazy import make_lazy

# Keras and TensorFlow are imported when one of these is used.
__all__ = make_lazy(
    __name__,
    {
        "keras_vit.training.auto": ["auto_recipe"],
        "keras_vit.training.job": ["Run", "train"],
        "keras_vit.training.recipes": ["RECIPES", "Recipe"],
        "keras_vit.training.starting_model": ["make_model"],
        "keras_vit.training.training_data": ["load_training_data"],
    },
)
