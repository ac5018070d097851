"""The choice of a learning rate on held-out images, as the paper makes it."""

import dataclasses
import logging

from keras_vit.training.callbacks import NotFiniteError


def choose_learning_rate(recipe, train):
    """Trains with each of a recipe's learning rates, and keeps the best.

    Args:
        recipe: a `Recipe` with `learning_rates`.
        train: function of a recipe that trains by it and returns the metrics of the epochs, as
            `fit` does.

    Returns:
        `(recipe, accuracies)`: the recipe with the learning rate that led to the highest validation
        accuracy at the end of training, the smaller of two that did; and a dictionary from
        learning rates to these accuracies, `None` for a rate that diverged.

    Raises:
        ValueError: if the recipe has no choice, or does not train on classes; or all rates diverge.

    Reference:
        Table 4 of the ViT paper (arXiv 2010.11929).
    """
    if not recipe.learning_rates:
        raise ValueError(
            "A sweep needs `learning_rates` to choose from. Received: a recipe with "
            f"learning_rate={recipe.learning_rate} alone"
        )
    if not recipe.is_of_classes:
        raise ValueError(
            f"A sweep is for classes, by their accuracy. Received: loss={recipe.loss!r}"
        )
    # Directories and results are named with 6 digits.
    if len({f"{rate:g}" for rate in recipe.learning_rates}) < len({*recipe.learning_rates}):
        raise ValueError(
            "`learning_rates` must differ in their first 6 digits. "
            f"Received: learning_rates={recipe.learning_rates}"
        )
    accuracies = {rate: _accuracy(recipe, rate, train) for rate in sorted({*recipe.learning_rates})}
    measured = {rate: value for rate, value in accuracies.items() if value is not None}
    if not measured:
        raise NotFiniteError(
            "One of the `learning_rates` must not diverge; try smaller ones. "
            f"Received: learning_rates={recipe.learning_rates}"
        )
    best = max(measured, key=measured.get)
    return dataclasses.replace(recipe, learning_rate=best), accuracies


def _accuracy(recipe, rate, train):
    """Return the accuracy at the end, `None` for a rate that is too high to get there."""
    try:
        return train(dataclasses.replace(recipe, learning_rate=rate))[-1]["val_accuracy"]
    except NotFiniteError as error:
        logging.getLogger("keras_vit").warning("%s", error)
        return None
