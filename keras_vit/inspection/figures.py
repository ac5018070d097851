"""Figures, drawn with matplotlib (`pip install 'keras-vit[plots]'`)."""

import numpy as np
from keras import ops

from keras_vit.models.surgery import check_classifier

COLUMNS = 6


def draw_predictions(model, images, labels, class_names, path):
    """Draws images with the model's prediction above each, green where it is right.

    Args:
        model: a classifier that returns logits.
        images: array `(batch, height, width, 3)` in [-1, 1].
        labels: array of class indices.
        class_names: name of each class.
        path: of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed, or the model is not a classifier.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(
            "Figures need matplotlib: pip install 'keras-vit[plots]'. Received: no matplotlib"
        ) from error
    check_classifier(model)
    logits = model.predict(images, verbose=0)
    probabilities = ops.convert_to_numpy(ops.softmax(logits))
    rows = -(-len(images) // COLUMNS)
    figure = Figure(figsize=(1.6 * COLUMNS, 1.9 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, COLUMNS))
    for axis in axes:
        axis.axis("off")
    for axis, image, label, scores in zip(axes, images, labels, probabilities, strict=False):
        predicted = int(scores.argmax())
        axis.imshow(np.clip((image + 1) / 2, 0, 1))
        axis.set_title(
            f"{class_names[predicted]} ({scores[predicted]:.0%})",
            color="green" if predicted == label else "red",
        )
    figure.suptitle("Predictions on test images (green: right, red: wrong)")
    figure.savefig(path, dpi=120)
