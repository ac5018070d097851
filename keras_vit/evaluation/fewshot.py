"""Few-shot accuracy: fit classifiers to frozen features of a few images per class."""

import functools
import importlib
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.core.arguments import check_choice
from keras_vit.core.text import mean_and_deviation
from keras_vit.data import find_source, load
from keras_vit.data.left_out import explaining_errors
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.data.sources.splits import split_names
from keras_vit.evaluation.classification import stateless_outputs
from keras_vit.evaluation.extraction import extract_features, split_features
from keras_vit.models.features import feature_extractor
from keras_vit.models.image_model import image_spec_of
from keras_vit.models.inference import for_inference, update_inference_copy

# As in `configs/common_fewshot.py` of big_vision.
SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
ALL = "all"
# `BIAS_CONSTANT` of `fewshot_lsr.py`: large, so that the weight of the bias is hardly regularized.
_BIAS = 100.0
# As in DINO's `eval_knn.py`.
_NEIGHBORS, _TEMPERATURE = 20, 0.07
# As in CLIP.
_MAX_ITERATIONS = 1000
# Number of images to score at once.
_CHUNK = 4096
# The decoded images of a split are kept in memory if they have at most this many bytes.
MOST_KEPT = 2**29


def evaluate_fewshot(
    model: keras.Model,
    name: str | tuple[Any, Any],
    train_split: str = "train",
    test_split: str = "test",
    shots: Sequence[int] | None = None,
    seeds: Sequence[int] = SEEDS,
    method: str = "least-squares",
    l2: float | None = None,
    layers: Sequence[str] | None = None,
    **data: Any,
) -> dict[tuple[int, int], float]:
    """Return the accuracy of a model's frozen features with a few labelled images per class.

    Args:
        model: a model of this package, with or without a head.
        name: name of a dataset, as in `keras_vit.data.load`; or a pair of datasets from `load` (or
            their `info.dataset`): the dataset of the labelled images, and the dataset to classify.
        train_split: the split from which labelled images are chosen.
        test_split: the split whose images are classified.
        shots: as in `fewshot_accuracies`.
        seeds: as in `fewshot_accuracies`.
        method: as in `fewshot_accuracies`.
        l2: as in `fewshot_accuracies`.
        layers: names of layers whose outputs are the features, as in `extract_features`.
        **data: only if `name` is a string: `cache`, `batch_size` and options of `load`, such as
            `classes` and `central_crop_from`, as in
            `keras_vit.evaluation.extraction.split_features`.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy on the whole test split.

    Raises:
        ValueError: if an argument is out of range, the splits overlap, or the dataset cannot be
            loaded.

    Example:
    >>> model = keras_vit.models.vision_transformer(
    ...     patch_size=4, embedding_dim=8, depth=1, num_heads=2, mlp_dim=16, image_size=8
    ... )
    >>> accuracies = evaluate_fewshot(model, "digits", shots=(1, 5), seeds=(0,))
    >>> list(accuracies)
    [(1, 0), (5, 0)]
    """
    # Check the settings before features are computed, which may take an hour.
    _classifier(method, l2, shots)
    if isinstance(name, str):
        if set(split_names(train_split)) & set(split_names(test_split)):
            raise ValueError(
                "`train_split` and `test_split` must not overlap. "
                f"Received: train_split={train_split!r}, test_split={test_split!r}"
            )
        # Start with the test split, which is usually smaller, so that errors are raised sooner.
        *test, test_names = split_features(model, name, test_split, layers=layers, **data)
        *train, class_names = split_features(model, name, train_split, layers=layers, **data)
    else:
        test, train = (
            extract_features(model, dataset, layers, **data) for dataset in reversed(name)
        )
        class_names, test_names = (dataset.class_names for dataset in name)
    if test_names != class_names:
        raise ValueError(
            "The splits must have the same classes. "
            f"Received: {len(class_names)} and {len(test_names)} classes, with different names"
        )
    return fewshot_accuracies(*train, *test, len(class_names), shots, seeds, method, l2)


def fewshot_accuracies(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    num_classes: int,
    shots: Sequence[int] | None = None,
    seeds: Sequence[int] = SEEDS,
    method: str = "least-squares",
    l2: float | None = None,
) -> dict[tuple[int, int], float]:
    """Return the accuracy of classifiers that are fitted to a few examples per class.

    `"least-squares"`, as in big_vision, is ridge regression in closed form from whitened features
    to targets of -1 and 1. In `"knn"`, as in DINO, the 20 examples with the greatest cosine
    similarity vote, weighted by the exponential of the similarity. `"linear-probe"`, as in CLIP, is
    logistic regression on standardized features, fitted with L-BFGS. `"knn"` and `"linear-probe"`
    need scikit-learn.

    Args:
        train_features: array `(examples, width)`.
        train_labels: int array `(examples,)`.
        test_features: array `(tests, width)`.
        test_labels: int array `(tests,)`.
        num_classes: number of classes.
        shots: numbers of examples per class: positive integers, or `"all"`. More shots include the
            examples of fewer shots. If a class has fewer examples, all are taken. The default is
            `(1, 5, 10, 25)` for least squares, and `("all",)` for other methods.
        seeds: seeds of the random choice. With `"all"`, only the first seed is used, because there
            is no choice.
        method: `"least-squares"`, `"knn"` or `"linear-probe"`.
        l2: for least squares, the weight of the squared parameters relative to the sum of the
            squared errors, by default 1024 as in big_vision; for the linear probe, the inverse of
            scikit-learn's `C`, by default 1. Not for `"knn"`.

    Returns:
        A dictionary from `(shots, seed)` to the accuracy on all test examples.

    Raises:
        ValueError: if an argument is out of range, or features are not finite.
        ImportError: if scikit-learn is needed and not installed.

    Reference:
        big_vision's `evaluators/fewshot_lsr.py`; DINO (arXiv 2104.14294) and its `eval_knn.py`;
        CLIP (arXiv 2103.00020), appendix A.3.

    Example:
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(60) % 3
    >>> features = np.eye(3)[labels] + rng.normal(scale=0.1, size=(60, 3))
    >>> fewshot_accuracies(features[:30], labels[:30], features[30:], labels[30:], 3, shots=(1, 5))
    {(1, 0): 1.0, (5, 0): 1.0, (1, 1): 1.0, (5, 1): 1.0, (1, 2): 1.0, (5, 2): 1.0}
    """
    classify = _classifier(method, l2, shots)
    train = _check_examples("train", train_features, train_labels, num_classes)
    test = _check_examples("test", test_features, test_labels, num_classes)
    shots = (SHOTS if method == "least-squares" else (ALL,)) if shots is None else shots
    choices = _all_choices(train[1], num_classes, shots, seeds)
    return _accuracies(classify, choices, train, test, num_classes)


def choose_examples(labels, num_classes, shots, seed):
    """Return the indices of randomly chosen examples of each class, one class after another.

    The choice is the same as in big_vision's `evaluators/fewshot_lsr.py`. With the same seed, more
    shots include the examples of fewer shots.
    """
    rng = np.random.default_rng(seed)
    classes = [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]
    return np.concatenate([members[: None if shots == ALL else shots] for members in classes])


def summary_rows(accuracies):
    """Return rows of strings, one per number of shots: shots, mean and deviation, seeds."""
    rows = []
    for shots in dict.fromkeys(count for count, _ in accuracies):
        values = [value for (count, _), value in accuracies.items() if count == shots]
        rows.append((str(shots), mean_and_deviation(values, 4), str(len(values))))
    return rows


def solve_least_squares(inputs, targets, l2):
    """Return the weights `w` that minimize `|inputs @ w - targets|**2 + l2 * |w|**2`.

    `inputs` are `(examples, width)`, `targets` `(examples, outputs)`, and the weights float64
    `(width, outputs)`. big_vision's `evaluators/fewshot_lsr.py` uses float32 instead.
    """
    # If x has the shape (examples, width), the weights are
    #     (x'x + l2 I)^-1 x'y = x'(xx' + l2 I)^-1 y.
    # The smaller of x'x and xx' is decomposed into q diag(eigenvalues) q'.
    x, y = np.asarray(inputs, "float64"), np.asarray(targets, "float64")
    is_tall = x.shape[0] >= x.shape[1]
    eigenvalues, q = np.linalg.eigh(x.T @ x if is_tall else x @ x.T)
    # Rounding errors can make eigenvalues slightly negative.
    scale = 1 / (np.maximum(eigenvalues, 0) + l2)[:, None]
    if is_tall:
        return q @ (scale * (q.T @ (x.T @ y)))
    return x.T @ (q @ (scale * (q.T @ y)))


class FewshotAccuracy:
    """Measure the few-shot accuracy of a model repeatedly during its training.

    The accuracy is computed as in `evaluate_fewshot` with least squares, from the representation
    before the head (after the layer `pre_logits`, if there is one). A call of the object with a
    model returns a function, and each call of this function measures the model.
    `keras_vit.training.callbacks.MeasureRegularly` does both.

    The first measurement decodes the train split once, to find the labels. Features are computed
    only for the chosen images and the test split. Decoded images are kept in memory if a split has
    at most 512 MiB; larger splits are decoded for each measurement.

    Args:
        data: name of a dataset, as in `keras_vit.data.load`. Classifiers are fitted to images of
            its train split, and images of its test split are classified.
        shots: numbers of training images per class, as in `fewshot_accuracies`.
        seeds: seeds of the choice of training images.
        classes: names of the classes to keep, as in `keras_vit.data.load`; all by default.
        data_dir: directory of TensorFlow Datasets.
        batch_size: images per batch.
        max_skipped: greatest share of images that may be skipped because they cannot be decoded.
        upright: whether to turn photographs upright by their EXIF orientation.

    Call arguments:
        model: a model of this package with a fixed image size, with or without a head.

    Call returns:
        A function without arguments that returns a dictionary: `"fewshot_5shot"` is the mean
        accuracy over the seeds with 5 shots, and, with several seeds, `"fewshot_5shot_std"` is the
        standard deviation (n - 1). Values are NaN if features are not finite.

    Raises:
        ValueError: if an argument is out of range, the dataset cannot be loaded, or, in the call,
            the model does not map an image to a vector.

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
        self._classify = _classifier("least-squares", None, shots)
        self.data, self.shots, self.seeds, self.classes = data, shots, seeds, classes
        self._options = {"classes": classes, "data_dir": data_dir}
        # If images are missing, raise the error before training.
        train, _ = (find_source(data, split, **self._options) for split in ("train", "test"))
        self._options |= {"batch_size": batch_size, "max_skipped": max_skipped, "upright": upright}
        self._num_classes = len(train.class_names)
        self._read_size_and_spec = self._choices = self._splits = None

    @property
    def settings(self):
        """The settings on which the accuracy depends besides the model, a dictionary for JSON."""
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
        # This copy is compiled once; each measurement updates its weights.
        inference_copy = for_inference(extractor)
        compute = outputs_function(inference_copy)

        def measure():
            if self._read_size_and_spec != (image_size, image_spec):
                self._read(image_size=image_size, image_spec=image_spec)
                self._read_size_and_spec = image_size, image_spec
            update_inference_copy(extractor, inference_copy)
            return self._measure(compute)

        return measure

    def _measure(self, compute):
        splits = []
        for batches, images, labels in self._splits:
            with explaining_errors(batches):
                splits.append((compute(images), labels))
        accuracies = dict.fromkeys(self._choices, math.nan)
        if all(np.isfinite(features).all() for features, _ in splits):
            accuracies = _accuracies(self._classify, self._choices, *splits, self._num_classes)
        metrics = {}
        for count in self.shots:
            values = [accuracies[key] for key in accuracies if key[0] == count]
            metrics[f"fewshot_{count}shot"] = float(np.mean(values))
            if len(values) > 1:
                metrics[f"fewshot_{count}shot_std"] = float(np.std(values, ddof=1))
        return metrics

    def _read(self, **options):
        """Choose images of the train split, and store them and the test split for `_measure`."""
        logging.getLogger("keras_vit").info("reading %s for the few-shot accuracy", self.data)
        options |= self._options
        train, test = (load(self.data, split, **options) for split in ("train", "test"))
        labels, source = _labels(train), train.info.dataset.source
        skipped = source.find_numbers(train.info.skipped.reasons)
        numbers = source.numbers[~np.isin(source.numbers, skipped)]
        choices = _all_choices(labels, self._num_classes, self.shots, self.seeds)
        used = np.unique(np.concatenate(list(choices.values())))
        self._choices = {key: np.searchsorted(used, chosen) for key, chosen in choices.items()}
        chosen = train.info.dataset.select(numbers[used]).batches()
        self._splits = (chosen, _images(chosen), labels[used]), (test, _images(test), _labels(test))


def _labels(batches):
    with explaining_errors(batches):
        return np.concatenate([labels for _, labels in batches.as_numpy_iterator()])


def _images(batches):
    """Return a dataset of only the images, cached in memory if it has at most `MOST_KEPT` bytes."""
    images = batches.map(lambda images, labels: images)
    size = 4 * math.prod(images.element_spec.shape[1:]) * batches.info.num_examples
    return images.cache() if size <= MOST_KEPT else images


def outputs_function(model):
    """Return a function from a dataset of batches of images to the outputs of a model.

    The function uses the current weights of the model, and all devices of the strategy under which
    the model was built. The model may be divided among the devices. Each process must call the
    function with the same images, and gets the outputs for all images, one row per image.
    """
    distribution = keras.distribution.distribution()
    if distribution is None:
        # TensorFlow's strategies divide batches themselves.
        return lambda images: model.predict(images, verbose=0)
    import jax

    mesh = distribution.device_mesh.backend_mesh
    num_replicas = mesh.shape[distribution.batch_dim_name]
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    predict = jax.jit(stateless_outputs(model), out_shardings=everywhere)

    def predict_all(images):
        groups = (model.trainable_variables, model.non_trainable_variables)
        variables = [[variable.value for variable in group] for group in groups]
        size, outputs = 0, []
        for batch in images.as_numpy_iterator():
            # Fill up smaller batches, because JAX would compile again for another size.
            size = max(size, -(-len(batch) // num_replicas) * num_replicas)
            filled = np.resize(batch, (size, *batch.shape[1:]))
            layout = distribution.get_data_layout(filled.shape).backend_layout
            shared = jax.make_array_from_callback(filled.shape, layout, filled.__getitem__)
            outputs.append(np.asarray(predict(variables, shared))[: len(batch)])
        return np.concatenate(outputs)

    return predict_all


def _classifier(method, l2, shots):
    """Return a function of training features and labels, test features, and the number of classes.

    The function returns the predicted class of each test example. `ValueError` is raised for
    settings that would silently give wrong classes.
    """
    check_choice("method", method, tuple(METHODS))
    if any(count != ALL and count < 1 for count in shots or ()):
        raise ValueError(f"`shots` must be positive integers or {ALL!r}. Received: shots={shots!r}")
    classify, default_l2 = METHODS[method]
    if l2 is not None and (default_l2 is None or not l2 > 0):
        raise ValueError(
            "`l2` must be a positive number, and can only be given with a method that has `l2`. "
            f"Received: l2={l2!r}, method={method!r}"
        )
    if method != "least-squares":
        importlib.import_module("sklearn")
    return functools.partial(classify, l2=default_l2 if l2 is None else l2)


def _least_squares(train, labels, test, num_classes, l2):
    mean, std = train.mean(axis=0, dtype="float64"), train.std(axis=0, dtype="float64") + 1e-5

    def whiten(features):
        whitened = (features - mean) / std
        return np.pad(whitened, ((0, 0), (0, 1)), constant_values=_BIAS)

    targets = 2.0 * (labels[:, None] == np.arange(num_classes)) - 1.0
    weights = solve_least_squares(whiten(train), targets, l2).astype("float32")
    # float32 is enough to compare scores with each other.
    chunks = (test[start : start + _CHUNK] for start in range(0, len(test), _CHUNK))
    scores = (whiten(chunk).astype("float32") @ weights for chunk in chunks)
    return np.concatenate([chunk.argmax(axis=1) for chunk in scores])


def _knn(train, labels, test, num_classes, l2):
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(
        min(_NEIGHBORS, len(train)),
        metric="cosine",
        weights=lambda distances: np.exp((1 - distances) / _TEMPERATURE),
    )
    return classifier.fit(train, labels).predict(test)


def _linear_probe(train, labels, test, num_classes, l2):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=1 / l2, max_iter=_MAX_ITERATIONS)
    probe = make_pipeline(StandardScaler(), regression)
    return probe.fit(train.astype("float64"), labels).predict(test)


# For each method, the function that classifies, and the default of `l2`.
METHODS = {
    "least-squares": (_least_squares, 1024.0),
    "knn": (_knn, None),
    "linear-probe": (_linear_probe, 1.0),
}


def _all_choices(labels, num_classes, shots, seeds):
    """Return a dictionary from `(shots, seed)` to the indices of the chosen examples.

    A warning is logged if classes have too few examples.
    """
    counts = np.bincount(labels, minlength=num_classes)
    most = max((count for count in shots if count != ALL), default=1)
    num_small = np.sum(counts < most)
    if num_small:
        text = "%d of the %d classes have fewer than %d training images, the smallest class has %d"
        logging.getLogger("keras_vit").warning(text, num_small, num_classes, most, counts.min())
    return {
        (count, seed): choose_examples(labels, num_classes, count, seed)
        for seed in seeds
        for count in shots
        if count != ALL or seed == seeds[0]
    }


def _accuracies(classify, choices, train, test, num_classes):
    """Return the accuracy for each choice; `train` and `test` are `(features, labels)`."""
    accuracies = {}
    for key, chosen in choices.items():
        predicted = classify(train[0][chosen], train[1][chosen], test[0], num_classes)
        accuracies[key] = float(np.mean(predicted == test[1]))
    return accuracies


def _check_examples(kind, features, labels, num_classes):
    features, labels = np.asarray(features), np.asarray(labels)
    if len(features) != len(labels) or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"`{kind}_labels` must be from 0 to {num_classes - 1}, one per example. Received: "
            f"{len(labels)} labels from {labels.min()} to {labels.max()}, {len(features)} examples"
        )
    if not np.isfinite(features).all():
        # Without this error, such features would be classified as class 0.
        raise ValueError(f"`{kind}_features` must be finite. Received: NaN or infinity")
    return features, labels
