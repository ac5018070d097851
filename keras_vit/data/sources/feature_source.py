"""Features of images, computed once, as the examples of a `Source`: for training only a head."""

import dataclasses

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.data.left_out import explaining_errors


def compute_features(dataset, extract):
    """Compute features of each image of a dataset, with a progress bar.

    An image that is skipped has neither features nor a label.

    Args:
        dataset: a dataset of `keras_vit.data.load` that ends.
        extract: function from a batch of images to an array with one row per image.

    Returns:
        `(features, labels)`, two arrays.
    """
    all_features, all_labels = [], []
    with (
        explaining_errors(dataset),
        tqdm.tqdm(total=dataset.info.num_examples, unit="image", desc="features") as progress,
    ):
        # Images and labels are read in one pass, so that both are skipped together.
        for images, labels in dataset.as_numpy_iterator():
            all_features.append(np.asarray(extract(images)))
            all_labels.append(labels)
            progress.update(len(labels))
    return np.concatenate(all_features), np.concatenate(all_labels)


def feature_source(source, features, labels, skipped):
    """Return the examples of a `Source` with features instead of images.

    Args:
        source: a `Source`.
        features: float32 array with one row per image that was not skipped, in order.
        labels: array of the labels of these images.
        skipped: ids of the skipped images.

    Returns:
        A `Source` without the skipped examples. A `FeatureMaker` reads its payloads.
    """
    numbers = source.numbers[~np.isin(source.numbers, source.find_numbers(skipped))]
    payloads = np.array([row.tobytes() for row in features.astype("float32")], dtype=object)
    examples = tf.data.Dataset.from_tensor_slices((numbers, payloads, labels))
    return source.with_examples(examples, numbers=numbers, shuffle_buffer=max(len(numbers), 1))


@dataclasses.dataclass(frozen=True)
class FeatureMaker:
    """Make features from the payloads of `feature_source`, with the methods of an `ImageMaker`."""

    shape: tuple[int, ...]

    def make(self):
        """Return a function of a payload and an unused seed that returns the features."""
        return self.read

    def read(self, payload, seed):
        """Return the features."""
        return tf.reshape(tf.io.decode_raw(payload, tf.float32), self.shape)

    def mixing(self):
        """Return `None`: features are not mixed."""
        return
