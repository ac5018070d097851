"""What a recipe has a model learn: classes, or what masked patches show."""

import dataclasses

import keras

from keras_vit.core.class_names import check_class_names
from keras_vit.data.patches import mask_patches
from keras_vit.data.processes import process
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.surgery import check_classifier, token_stride
from keras_vit.training.losses import make_loss
from keras_vit.training.masked_patches import masked_patch_loss


@dataclasses.dataclass(frozen=True)
class Task:
    """What `model.fit` is given.

    Args:
        model: what is compiled and trained.
        train: the dataset, without an end.
        validation: the dataset, or `None`.
        loss: as of `keras.Model.compile`.
        metrics: as of `keras.Model.compile`, weighted.
        facts: dictionary of what `run.json` shall say of it.
    """

    model: keras.Model
    train: object
    validation: object
    loss: object
    metrics: tuple[str, ...]
    facts: dict


def make_task(recipe, model, data):
    """The task of a recipe.

    Args:
        recipe: a `Recipe`.
        model: the model that the run is about.
        data: `(train, validation)`, datasets of `load_training_data`.

    Returns:
        A `Task`.

    Raises:
        ValueError: if the model has no head for the dataset's classes, or no patches to be masked.
    """
    if not recipe.is_of_classes:
        return _masked_patches(recipe, model, *data)
    train, validation = data
    check_class_names(train.class_names)
    if validation is not None and validation.class_names != train.class_names:
        raise ValueError(
            "The training and validation images must have the same classes. "
            f"Received: {train.class_names} and {validation.class_names}"
        )
    num_classes = check_classifier(model)
    if num_classes != len(train.class_names):
        raise ValueError(
            f"`model` must have a head of the dataset's {len(train.class_names)} classes; "
            f"see `keras_vit.replace_head`. Received: a model of {num_classes} outputs"
        )
    loss = make_loss(recipe, train.element_spec[1])
    facts = {"class_names": train.class_names, "num_examples": train.num_examples}
    return Task(model, train, validation, loss, ("accuracy",), facts)


def _masked_patches(recipe, model, train, validation):
    predictor = masked_patch_predictor(model, recipe.loss)
    patch_size = token_stride(model)
    return Task(
        predictor,
        # Each process draws masks of its own.
        mask_patches(train, patch_size, recipe.loss, seed=recipe.seed + 2**32 * process()[0]),
        None if validation is None else mask_patches(validation, patch_size, recipe.loss),
        masked_patch_loss(recipe.loss),
        # Of pixels there is no right or wrong.
        () if recipe.loss == "pixels" else ("accuracy",),
        {"num_examples": train.num_examples},
    )
