"""The optimizers of the paper."""

import keras

from keras_vit.training.schedules import learning_rate_schedule


def make_optimizer(recipe, model, total_steps):
    """The optimizer of a recipe.

    Args:
        recipe: a `Recipe`.
        model: the built model that it will train.
        total_steps: steps of the run.

    Returns:
        A `keras.optimizers.Optimizer`.

    Reference:
        Tables 3 and 4 of the ViT paper (arXiv 2010.11929).
    """
    learning_rate = learning_rate_schedule(
        recipe.decay, recipe.learning_rate, total_steps, recipe.warmup_steps
    )
    shared = {"learning_rate": learning_rate, "global_clipnorm": recipe.clip_norm}
    if recipe.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(
            momentum=0.9, weight_decay=recipe.weight_decay or None, **shared
        )
    else:
        # optax's epsilon; Keras's is 1e-7.
        optimizer = keras.optimizers.AdamW(weight_decay=recipe.weight_decay, epsilon=1e-8, **shared)
    if recipe.weight_decay:
        optimizer.exclude_from_weight_decay(var_list=not_kernels(model))
    # Keras scales the loss by itself under the global policy alone.
    if any(layer.compute_dtype == "float16" for layer in model.layers):
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def not_kernels(model):
    """The variables that no weight decay touches: all but kernels, as in big_vision."""
    return [variable for variable in model.trainable_variables if variable.name != "kernel"]
