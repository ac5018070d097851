"""Outputs of a classifier that contradict each other."""

import numpy as np
import scipy.special

# Largest rounding error of a probability.
TOLERANCE = 1e-3
_TOP = ("top_k_classes", "top_k_labels", "top_k_probabilities")


def is_good(outputs):
    """Return for each image whether it was classified."""
    count = len(next(iter(outputs.values())))
    return ~outputs.get("is_bad", np.zeros(count, bool))


def find_contradiction(outputs):
    """Describe the first outputs that contradict each other, or return `None`.

    Example:
    >>> find_contradiction({"probabilities": np.array([[0.5, 0.7]])})
    'the sum of `probabilities` must be 1'
    """
    for names in (("logits", "probabilities"), _TOP):
        shapes = {name: outputs[name].shape for name in names if name in outputs}
        if len(set(shapes.values())) > 1:
            return f"these outputs must have one shape: {shapes}"
    good = is_good(outputs)
    outputs = {name: array[good] for name, array in outputs.items()}
    return next(_contradictions(**outputs), None)


def _contradictions(
    logits=None,
    probabilities=None,
    top_k_classes=None,
    top_k_labels=None,
    top_k_probabilities=None,
    predicted=None,
    **_,
):
    # A model with thresholds predicts several labels.
    name = "softmax" if predicted is None else "sigmoid"
    functions = {"softmax": lambda x: scipy.special.softmax(x, 1), "sigmoid": scipy.special.expit}
    expected = None if logits is None else functions[name](logits)
    if probabilities is None:
        probabilities = expected
    elif predicted is None and _differ(probabilities.sum(axis=1), 1):
        yield "the sum of `probabilities` must be 1"
    elif expected is not None and _differ(expected, probabilities):
        yield f"`probabilities` must be the {name} of `logits`"
    # Labels may occur twice: ImageNet has two classes "crane".
    if top_k_classes is not None and not np.diff(np.sort(top_k_classes)).all():
        yield "`top_k_classes` must be different classes"
    if top_k_classes is not None and top_k_labels is not None:
        pairs = set(zip(top_k_classes.flat, top_k_labels.flat, strict=True))
        if len(pairs) > len(set(top_k_classes.flat)):
            yield "`top_k_labels` must have one label for each class"
    if top_k_probabilities is not None and (np.diff(top_k_probabilities) > TOLERANCE).any():
        yield "`top_k_probabilities` must come in order, the most likely class first"
    if probabilities is not None and top_k_classes is not None:
        yield from _wrong_top(probabilities, top_k_classes, top_k_probabilities)


def _wrong_top(probabilities, classes, top_k_probabilities):
    count = probabilities.shape[1]
    if (classes >= count).any():
        yield f"`top_k_classes` must be less than {count}, the number of classes"
        return
    found = np.take_along_axis(probabilities, classes, axis=1)
    if _differ(found, -np.sort(-probabilities, axis=1)[:, : classes.shape[1]]):
        yield "`top_k_classes` must be the most likely classes"
    if top_k_probabilities is not None and _differ(found, top_k_probabilities):
        yield "`top_k_probabilities` must be those of `top_k_classes`"


def _differ(values, expected):
    return (abs(values - expected) > TOLERANCE).any()
