"""Figure of the images that a model is most wrong about."""

import numpy as np

from keras_vit.inspection.figures.drawing import COLUMNS, empty_axes, new_figure, save_figure


def draw_mistakes(images, labels, predicted, probabilities, class_names, path):
    """Draw images with the class that a model predicts, and their own class.

    Args:
        images: array `(batch, height, width, 3)` in [-1, 1] of at least one image.
        labels: array of class indices.
        predicted: array of the predicted class indices.
        probabilities: array of the probabilities of the predicted classes.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    rows = -(-len(images) // COLUMNS)
    figure = new_figure(1.8 * COLUMNS, 2.2 * rows + 0.4)
    axes = empty_axes(figure, rows, COLUMNS)
    columns = zip(axes, images, labels, predicted, probabilities, strict=False)
    for axis, image, label, guess, probability in columns:
        axis.imshow(np.clip((image + 1) / 2, 0, 1))
        title = f"{class_names[guess]} ({probability:.0%})\nis {class_names[label]}"
        axis.set_title(title, fontsize=8)
    figure.suptitle("Predicted class and probability, and the class that the image has")
    save_figure(figure, path)
