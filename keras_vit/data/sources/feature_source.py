"""A `Source` of features of images, which are computed once, for training only a head."""

import dataclasses

import numpy as np
import tensorflow as tf
import tqdm

from keras_vit.data.left_out import explaining_errors


def compute_features(dataset, extract):
    """Compute features of each image of a dataset, with a progress bar.

    Skipped images have neither features nor labels.

    Args:
        dataset: a dataset from `keras_vit.data.load` that is not repeated.
        extract: function from a batch of images to an array with one row per image.

    Returns:
        `(features, labels)`, two arrays.
    """
    all_features, all_labels = [], []
    with (
        explaining_errors(dataset),
        tqdm.tqdm(total=dataset.info.num_examples, unit="image", desc="features") as progress,
    ):
        # If labels were read in another pass, other images might be skipped.
        for images, labels in dataset.as_numpy_iterator():
            all_features.append(np.asarray(extract(images)))
            all_labels.append(labels)
            progress.update(len(labels))
    return np.concatenate(all_features), np.concatenate(all_labels)


def feature_source(source, features, labels, skipped):
    """Return a `Source` of features instead of images.

    Args:
        source: the `Source` of the images.
        features: float32 array with one row per image that was not skipped, in their order.
        labels: array of the labels of these images.
        skipped: ids of the skipped images.

    Returns:
        A `Source` without the skipped examples, whose payloads a `FeatureMaker` reads.
    """
    numbers = source.numbers[~np.isin(source.numbers, source.find_numbers(skipped))]
    payloads = np.array([row.tobytes() for row in features.astype("float32")], dtype=object)
    examples = tf.data.Dataset.from_tensor_slices((numbers, payloads, labels))
    return source.with_examples(examples, numbers=numbers, shuffle_buffer=max(len(numbers), 1))


@dataclasses.dataclass(frozen=True)
class FeatureMaker:
    """Read features from the payloads of `feature_source`; replaces an `ImageMaker`."""

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
