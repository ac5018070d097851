"""Information on a dataset of `load`: class names, number of images, skipped images."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_vit.data.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    from keras_vit.data.skipped import Skipped
    from keras_vit.data.sources.base import Source


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Information on a dataset of `load`, its attribute `info`.

    The dataset has each field as an attribute, too. `tf.data` does not copy attributes to the
    results of `map`, `take`, `batch` or `prefetch`: keep `dataset.info`, which stays valid, or
    attach it to the result.

    Args:
        class_names: tuple of the names of the classes, by label.
        num_examples: number of images of the shard, broken ones included.
        shard: `(index, count)`, the share of one worker.
        skipped: the images that could not be decoded so far: `len(skipped)` counts them,
            `skipped.reasons` says why. It grows while batches are read, from a mapped dataset too.
        left_out: `collections.Counter` of the files that are not images, by reason.
        source: the `Source` of the examples, without the repetitions of `balanced`.
        preprocessing: the `Preprocessing` of the images.
        training: whether the dataset was loaded with `training=True`, which shuffles it anew in
            each pass.
        from_step: function of `start_step` and `skip` that returns the same dataset from another
            step on, for resuming.
        with_features: function of a function from images to features, that returns the same dataset
            with features, computed once, in place of the images.
        only: function of numbers of examples (`source.numbers`) that returns a dataset of these
            alone, in the same order. Other images are not decoded. Its `source` is
            still that of all examples.

    Example:
    >>> digits = keras_vit.data.load("digits", "test", image_size=16, batch_size=32)
    >>> negatives = digits.map(lambda images, labels: (-images, labels)).prefetch(2)
    >>> hasattr(negatives, "num_examples"), digits.info.num_examples
    (False, 359)
    >>> digits.info.attach(negatives).num_examples
    359
    """

    class_names: tuple[str, ...]
    num_examples: int
    shard: tuple[int, int]
    skipped: "Skipped"
    left_out: dict
    source: "Source"
    preprocessing: Preprocessing
    training: bool
    from_step: Callable
    with_features: Callable
    only: Callable

    def attach(self, dataset: Any) -> Any:
        """Set the fields and `info` as attributes of a dataset, and return the dataset."""
        dataset.info = self
        for field in dataclasses.fields(self):
            setattr(dataset, field.name, getattr(self, field.name))
        return dataset
