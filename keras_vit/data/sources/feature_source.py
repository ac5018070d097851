"""Features of images that are computed once, as the examples of a dataset."""

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
        extract: function from a batch of images to an array with a row for each.

    Returns:
        `(features, labels)`, two arrays.
    """
    all_features, all_labels = [], []
    with (
        explaining_errors(dataset),
        tqdm.tqdm(total=dataset.info.num_examples, unit="image", desc="features") as progress,
    ):
        # One pass, so that an image and its label are skipped together.
        for images, labels in dataset.as_numpy_iterator():
            all_features.append(np.asarray(extract(images)))
            all_labels.append(labels)
            progress.update(len(labels))
    return np.concatenate(all_features), np.concatenate(all_labels)


def feature_source(source, features, labels, skipped):
    """Return the examples of a `Source` with features in place of images.

    Args:
        source: a `Source`.
        features: float32 array with a row for each image that was not skipped, in order.
        labels: array of their labels.
        skipped: ids of the examples that were skipped.

    Returns:
        A `Source` without the skipped examples, of which a `FeatureMaker` makes the features.
    """
    numbers = source.numbers[~np.isin(source.numbers, source.find_numbers(skipped))]
    payloads = np.array([row.tobytes() for row in features.astype("float32")], dtype=object)
    examples = tf.data.Dataset.from_tensor_slices((numbers, payloads, labels))
    return source.holding(examples, numbers=numbers, shuffle_buffer=max(len(numbers), 1))


@dataclasses.dataclass(frozen=True)
class FeatureMaker:
    """Make features of a shape from the payloads of `feature_source`, as an `ImageMaker` images."""

    shape: tuple[int, ...]

    def make(self):
        """Return a function of a payload and a seed, which is not used."""
        return self.read

    def read(self, payload, seed):
        """Return the features."""
        return tf.reshape(tf.io.decode_raw(payload, tf.float32), self.shape)

    def mixing(self):
        """Return `None`: features are not mixed."""
        return
