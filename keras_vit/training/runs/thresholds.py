"""The mean average precision on validation images of several labels, and thresholds from them."""

import keras
import numpy as np
import scipy.special

from keras_vit.core.several_labels import average_precision, best_thresholds
from keras_vit.data.processes import process
from keras_vit.training.callbacks.averaging import averaged_weights


class ChooseThresholds(keras.callbacks.Callback):
    """Log `val_mean_average_precision`, and choose the thresholds of the model of a run.

    Keras's metrics approximate it, so each epoch passes over the validation images once more.
    """

    def __init__(self, validation, model):
        super().__init__()
        self.validation = validation
        self.saved = model

    def on_epoch_end(self, epoch, logs=None):
        labels, logits = [], []
        with averaged_weights(self.model):
            for images, rows in self.validation.as_numpy_iterator():
                # JAX would compile again for a smaller batch.
                size = len(labels[0]) if labels else len(rows)
                filled = np.resize(images, (size, *images.shape[1:]))
                logits.append(np.asarray(self.model.predict_on_batch(filled))[: len(rows)])
                labels.append(rows)
        labels, logits = np.concatenate(labels), np.concatenate(logits).astype("float64")
        if not labels.any():
            raise ValueError("The validation images must have a label. Received: images without")
        logs["val_mean_average_precision"] = np.nan
        if np.isfinite(logits).all():
            precision = np.nanmean(average_precision(labels, logits))
            logs["val_mean_average_precision"] = float(precision)
            self.saved.thresholds = best_thresholds(labels, scipy.special.expit(logits))


def measures_precision(recipe, task, model):
    """Whether a run measures the mean average precision, of a model with thresholds."""
    is_of_labels = recipe.is_of_classes and getattr(model, "thresholds", None) is not None
    # Several processes would have to gather the logits.
    return is_of_labels and task.validation is not None and process()[1] == 1
