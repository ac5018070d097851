"""The best epoch of a run, and the end of a run that gets no better."""

import math

import keras

from keras_vit.core.arguments import check_integer


class StopEarly(keras.callbacks.Callback):
    """Stop a run after some epochs without a better model.

    Keras's `EarlyStopping` counts from the start of a process; this one counts in the metrics of
    all epochs, so that a resumed run stops where an uninterrupted one does.

    Args:
        history: list of the metrics of the epochs so far, to which `SaveModels` adds before.
        patience: number of epochs without a better model after which training ends.
        monitor: as in `find_best`.

    Raises:
        ValueError: if `patience` is not a positive integer.
    """

    def __init__(self, history: list, patience: int, monitor: str | None = None) -> None:
        super().__init__()
        self.history = history
        self.patience = check_integer("patience", patience, minimum=1)
        self.monitor = monitor

    def on_epoch_end(self, epoch, logs=None):
        if self.is_over():
            self.model.stop_training = True

    def is_over(self):
        """Return whether the last epochs were no better."""
        since = len(self.history) - 1 - find_best(self.history, self.monitor)
        return bool(self.history) and since >= self.patience


class StopAfterEpoch(keras.callbacks.Callback):
    """Stop after one epoch of several; `was_stopped` says whether another callback stopped it."""

    was_stopped = False

    def on_epoch_end(self, epoch, logs=None):
        self.was_stopped = self.model.stop_training
        self.model.stop_training = True


def find_best(history, monitor=None):
    """Return the index of the best epoch, the first of equal ones; -1 without epochs.

    Args:
        history: list of dictionaries, the metrics of each epoch.
        monitor: name of a metric; if it contains `loss`, smaller is better. By default the
            validation accuracy (or mean average precision), then the validation loss, or the last
            epoch without validation.

    Example:
    >>> from keras_vit.training.callbacks.stopping import find_best
    >>> find_best([{"val_loss": 2.0}, {"val_loss": 1.0}, {"val_loss": 3.0}], "val_loss")
    1
    """
    scores = [_score(index, metrics, monitor) for index, metrics in enumerate(history)]
    return scores.index(max(scores)) if scores else -1


def _score(index, metrics, monitor):
    loss = metrics.get("val_loss", 0.0)
    if not math.isfinite(loss):
        return (-math.inf,)
    if monitor is not None:
        value = -metrics[monitor] if "loss" in monitor else metrics[monitor]
        return (value if math.isfinite(value) else -math.inf,)
    if "val_loss" not in metrics:
        return (index,)
    # Predictions of pixels have no accuracy.
    quality = metrics.get("val_mean_average_precision", metrics.get("val_accuracy", 0.0))
    return (quality if math.isfinite(quality) else -math.inf, -loss)
