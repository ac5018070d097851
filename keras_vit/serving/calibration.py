"""Calibration images, on which the ranges of activations are measured for int8."""

import logging

import numpy as np

from keras_vit.core import pixels
from keras_vit.serving.formats import FORMATS

FEWEST_IMAGES = 10
# A range of pixel values in [-1, 1]: 3 of 256 levels.
LEAST_CONTRAST = 0.025


def check_images(format, quantize, images, image_size, argument="images"):
    """Return calibration images as a float32 array, `None` if the precision needs none."""
    if not FORMATS[format].needs_images(quantize):
        return None
    shape = (*image_size, 3)
    rule = (
        f"`{argument}` must be a float32 array (n, {', '.join(map(str, shape))}) of preprocessed "
        f"images to calibrate with, for {format} in {quantize}. "
    )
    if images is None:
        raise ValueError(f"{rule}Received: {argument}=None")
    array = np.asarray(images)
    has_shape = array.shape[1:] == shape or (None in shape and array.ndim == 4)
    if array.dtype.kind != "f" or not has_shape or not len(array):
        raise ValueError(f"{rule}Received: an array {array.shape} of {array.dtype}")
    pixels.check_images(array, argument)
    return array.astype("float32")


def warn_of_calibration(images):
    """Log a warning for few or almost constant calibration images."""
    logger = logging.getLogger("keras_vit")
    if len(images) < FEWEST_IMAGES:
        logger.warning("int8 is calibrated on %d images: use some hundred", len(images))
    constant = int((np.ptp(images, axis=(1, 2, 3)) < LEAST_CONTRAST).sum())
    if constant:
        logger.warning("%d of %d calibration images are almost constant", constant, len(images))
