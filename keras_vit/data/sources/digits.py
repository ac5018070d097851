"""The handwritten digits that scikit-learn ships, which need no download."""

import functools

import numpy as np
import tensorflow as tf

from keras_vit.data.sources.base import from_arrays, take_classes
from keras_vit.data.sources.splits import find_parts, stratified_part


def digits(split, classes=None, shard=(0, 1)):
    """The 1,797 handwritten digits of 8 x 8 pixels that scikit-learn ships.

    Args:
        split: as in `load`.
        classes: as in `load`.
        shard: `(index, count)`, the part of one worker among so many.

    Returns:
        A `Source`; an id is `digits#` and the place in scikit-learn's array.

    Raises:
        ValueError: if scikit-learn is not installed, or a split or a class is unknown.

    Reference:
        Optical Recognition of Handwritten Digits, UCI machine learning repository.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(
            "The dataset `digits` comes with scikit-learn: pip install 'keras-vit[demo]'. "
            "Received: name='digits'"
        ) from error
    data = load_digits()
    parts = find_parts(split, given=["train"])
    part = np.sort(np.concatenate([stratified_part(data.target, *ends) for _, *ends in parts]))
    labels, names = data.target, [str(digit) for digit in range(10)]
    if classes is not None:
        keep, labels, names = take_classes(labels, names, classes)
        part = part[keep[part]]
    return from_arrays(
        _encoded_images(),
        labels,
        names,
        find_id=lambda number: f"digits#{number}",
        part=part[shard[0] :: shard[1]],
    )


@functools.cache
def _encoded_images():
    from sklearn.datasets import load_digits

    # Ink is 0 to 16; pixels are 0 to 255.
    pixels = np.round(load_digits().images * (255 / 16)).astype("uint8")
    return np.array([tf.io.encode_png(image[..., None]).numpy() for image in pixels], object)
