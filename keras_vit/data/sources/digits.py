"""The handwritten digits that scikit-learn contains, without a download."""

import functools

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.base import from_arrays, stratified_part, take_classes
from keras_vit.data.sources.splits import find_parts


def digits(split, classes=None, shard=(0, 1)):
    """Return the 1,797 handwritten digits of 8 x 8 pixels in scikit-learn, as a `Source`.

    Ids are `digits#` and the index in the array of scikit-learn. Arguments as in `find_source`.

    Reference:
        Optical Recognition of Handwritten Digits, UCI machine learning repository.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    parts = find_parts(split, given=["train"])
    part = np.sort(np.concatenate([stratified_part(data.target, *ends) for _, *ends in parts]))
    labels, names = data.target, [str(digit) for digit in range(10)]
    if classes is not None:
        keep, labels, names = take_classes(labels, names, classes)
        part = part[keep[part]]
    part = part[shard[0] :: shard[1]]
    return from_arrays(_encoded_images(), labels, names, "digits#{}".format, part)


@functools.cache
def _encoded_images():
    from sklearn.datasets import load_digits

    # From [0, 16] to [0, 255].
    pixels = np.round(load_digits().images * (255 / 16)).astype("uint8")
    return np.array([tf.io.encode_png(image[..., None]).numpy() for image in pixels], object)
