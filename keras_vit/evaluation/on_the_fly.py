"""The few-shot accuracy of a model that is being trained."""

import dataclasses
import logging
import math
import os
from collections.abc import Sequence

import numpy as np

from keras_vit.core.arguments import check_integer
from keras_vit.data.loading import find_source, load
from keras_vit.data.skipped import explaining_errors
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.evaluation.fewshot import (
    SEEDS,
    accuracies_of,
    all_choices,
    check_fewshot_settings,
)
from keras_vit.evaluation.processes import outputs_function
from keras_vit.models.features import feature_extractor
from keras_vit.models.inference import for_inference, update_inference_copy
from keras_vit.models.model import image_spec_of

# Bytes of the decoded images of a split that are kept in memory; of a larger one, none are.
MOST_KEPT = 2**29


class FewshotAccuracy:
    """The few-shot accuracy of a model, measured again and again while it is trained.

    It is that of `evaluate_fewshot` with least squares, of the representation that the head sees
    (after `pre_logits`, if there is one). Call it with a model to get the function that measures;
    `keras_vit.training.callbacks.MeasureRegularly` does.

    At first the train split is decoded once, to find its labels. Features are computed of the test
    split and of the chosen images alone. These are kept in memory, decoded, up to 512 MiB per
    split; larger splits are decoded each time.

    Args:
        data: name of a dataset, as in `keras_vit.data.load`. Images of its train split are learned
            from, those of its test split are classified.
        shots: numbers of images per class to learn from, as in `fewshot_accuracies`.
        seeds: seeds of the choice of these images.
        classes: names of the classes to keep, as in `keras_vit.data.load`; all by default.
        data_dir: directory of TensorFlow Datasets.
        batch_size: images in one step.
        max_skipped: greatest share of images that may be skipped because they cannot be decoded.
        upright: whether photographs are turned upright by their EXIF orientation.

    Call arguments:
        model: a model of this package, with any head or none, of one image size.

    Call returns:
        A function without arguments. It returns a dictionary from `"fewshot_5shot"` to the mean
        accuracy over the seeds of 5 shots, from 0 to 1, and, with several seeds, from
        `"fewshot_5shot_std"` to their standard deviation (n - 1). NaN if features are not finite.

    Raises:
        ValueError: if an argument is out of range, the dataset cannot be loaded, or, in the call,
            the model does not map an RGB image of one size to a vector.

    Reference:
        Section 4.1 of the ViT paper (arXiv 2010.11929), "fast on-the-fly evaluation"; big_vision's
        `evaluators/fewshot_lsr.py`.

    Example:
    >>> model = keras_vit.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, image_size=8
    ... )
    >>> measure = keras_vit.evaluation.FewshotAccuracy("digits", shots=(1, 5))(model)
    >>> sorted(measure())
    ['fewshot_1shot', 'fewshot_1shot_std', 'fewshot_5shot', 'fewshot_5shot_std']
    """

    def __init__(
        self,
        data: str,
        shots: Sequence[int] = (5,),
        seeds: Sequence[int] = SEEDS,
        *,
        classes: Sequence[str] | None = None,
        data_dir: str | os.PathLike | None = None,
        batch_size: int = 32,
        max_skipped: float = 0.1,
        upright: bool = False,
    ) -> None:
        check_fewshot_settings(shots, seeds, "least-squares", None)
        check_integer("batch_size", batch_size, 1)
        self.data, self.shots, self.seeds, self.classes = data, shots, seeds, classes
        self._options = {"classes": classes, "data_dir": data_dir}
        train, test = (find_source(data, split, **self._options) for split in ("train", "test"))
        if train.class_names != test.class_names or train.has_several_labels:
            raise ValueError(
                "The splits of `data` must have the same classes, one for each image. Received: "
                f"data={data!r} with {len(train.class_names)} and {len(test.class_names)} classes"
            )
        self._options |= {"batch_size": batch_size, "max_skipped": max_skipped, "upright": upright}
        self._read_as = self._examples = None

    @property
    def settings(self):
        """What the accuracy depends on besides the model, a dictionary for JSON."""
        return {
            "data": absolute_name(self.data),
            "shots": list(self.shots),
            "seeds": list(self.seeds),
            "classes": self.classes and list(self.classes),
            "upright": self._options["upright"],
        }

    def __call__(self, model):
        extractor = feature_extractor(model)
        image_size, image_spec = model.input_shape[1:3], image_spec_of(model)
        if None in image_size:
            raise ValueError(
                "`model` must be of one image size, as `keras_vit.resize` makes it. "
                f"Received: the model {model.name!r} of any size"
            )
        # Compiled once; its weights are updated.
        folded = for_inference(extractor)
        compute = outputs_function(folded)

        def measure():
            if self._read_as != (image_size, image_spec):
                self._examples = self._read(image_size, image_spec)
                self._read_as = image_size, image_spec
            if folded is not extractor:
                update_inference_copy(extractor, folded)
            return self._measure(compute)

        return measure

    def _measure(self, compute):
        examples = self._examples
        train, test = ((split.compute(compute), split.labels) for split in examples.splits)
        finite = all(np.isfinite(features).all() for features, _ in (train, test))
        accuracies = dict.fromkeys(examples.choices, math.nan)
        if finite:
            accuracies = accuracies_of(examples.choices, train, test, examples.num_classes)
        found = {}
        for count in self.shots:
            values = [accuracies[key] for key in accuracies if key[0] == count]
            found[f"fewshot_{count}shot"] = float(np.mean(values))
            if len(values) > 1:
                found[f"fewshot_{count}shot_std"] = float(np.std(values, ddof=1))
        return found

    def _read(self, image_size, image_spec):
        logging.getLogger("keras_vit").info("reading %s for the few-shot accuracy", self.data)
        options = {"image_size": image_size, "image_spec": image_spec, **self._options}
        train, test = (load(self.data, split, **options) for split in ("train", "test"))
        labels = _labels_of(train)
        numbers = train.source.numbers
        numbers = numbers[~np.isin(numbers, train.source.find_numbers(train.skipped.ids))]
        if len(numbers) != len(labels):
            raise ValueError(
                "The images of `data` must have different ids. Received: "
                f"{self.data!r} with {len(train.skipped)} skipped images, of which some have not"
            )
        choices = all_choices(labels, len(train.class_names), self.shots, self.seeds)
        kept = np.unique(np.concatenate(list(choices.values())))
        places = {key: np.searchsorted(kept, chosen) for key, chosen in choices.items()}
        test = _kept(test)
        splits = (
            _split(_kept(train.only(numbers[kept])), labels[kept]),
            _split(test, _labels_of(test)),
        )
        return _Examples(splits, places, len(train.class_names))


@dataclasses.dataclass(frozen=True)
class _Split:
    """A dataset of `load`, and its images and labels alone."""

    dataset: object
    images: object
    labels: np.ndarray

    def compute(self, compute):
        """Return the features of the images that a function computes."""
        with explaining_errors(self.dataset):
            features = compute(self.images)
        if len(features) != len(self.labels):
            raise ValueError(
                "The images of the few-shot accuracy must be readable each time. "
                f"Received: {len(features)} images instead of {len(self.labels)}"
            )
        return features


@dataclasses.dataclass(frozen=True)
class _Examples:
    """The chosen images and the test images, and which of the chosen ones belong to a choice."""

    splits: tuple[_Split, _Split]
    choices: dict
    num_classes: int


def _split(dataset, labels):
    return _Split(dataset, dataset.map(lambda images, labels: images), labels)


def _labels_of(dataset):
    with explaining_errors(dataset):
        return np.concatenate([labels for _, labels in dataset.as_numpy_iterator()])


def _kept(dataset):
    """Return a dataset that keeps its images in memory after the first pass, if they are small."""
    shape = dataset.element_spec[0].shape[1:]
    is_small = 4 * math.prod(shape) * dataset.num_examples <= MOST_KEPT
    return dataset.info.attach(dataset.cache()) if is_small else dataset
