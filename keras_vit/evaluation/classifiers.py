"""Classifiers of features: least squares in closed form, nearest neighbors, a linear probe."""

import importlib.util
import logging
import warnings

import numpy as np

# Large, so that its weight is hardly regularized; `BIAS_CONSTANT` of `evaluators/fewshot_lsr.py`.
_BIAS = 100.0
# As in DINO's `eval_knn.py`.
_NEIGHBORS, _TEMPERATURE = 20, 0.07
# As in CLIP.
_MAX_ITERATIONS = 1000
# Images that are scored at a time.
_CHUNK = 4096


def solve_least_squares(inputs, targets, l2):
    """Return the weights `w` with the least `|inputs @ w - targets|**2 + l2 * |w|**2`.

    Inputs are `(examples, width)`, targets `(examples, outputs)`; the weights are float64
    `(width, outputs)`. big_vision's `evaluators/fewshot_lsr.py` computes in float32.
    """
    # With x of (examples, width), the weights are
    #     (x'x + l2 I)^-1 x'y = x'(xx' + l2 I)^-1 y.
    # The smaller one of x'x and xx' is decomposed into q diag(eigenvalues) q'.
    x, y = np.asarray(inputs, "float64"), np.asarray(targets, "float64")
    is_tall = x.shape[0] >= x.shape[1]
    eigenvalues, q = np.linalg.eigh(x.T @ x if is_tall else x @ x.T)
    # Rounding can leave eigenvalues a little below 0.
    scale = 1 / (np.maximum(eigenvalues, 0) + l2)[:, None]
    if is_tall:
        return q @ (scale * (q.T @ (x.T @ y)))
    return x.T @ (q @ (scale * (q.T @ y)))


def check_sklearn(method):
    """Raise `ValueError` if scikit-learn, which a method needs, is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise ValueError(
            f"The method `{method}` comes with scikit-learn: pip install 'keras-vit-zoo[demo]'. "
            f"Received: method={method!r}"
        )


def _least_squares(train, labels, test, num_classes, l2):
    mean, std = train.mean(axis=0, dtype="float64"), train.std(axis=0, dtype="float64") + 1e-5

    def whiten(features):
        whitened = (features - mean) / std
        return np.pad(whitened, ((0, 0), (0, 1)), constant_values=_BIAS)

    targets = 2.0 * (labels[:, None] == np.arange(num_classes)) - 1.0
    weights = solve_least_squares(whiten(train), targets, l2).astype("float32")
    # Scores are only compared with each other: float32 is enough.
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
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=1 / l2, max_iter=_MAX_ITERATIONS)
    probe = make_pipeline(StandardScaler(), regression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe.fit(train.astype("float64"), labels)
    if regression.n_iter_.max() >= _MAX_ITERATIONS:
        logging.getLogger("keras_vit").warning(
            "the linear probe has not converged after %d iterations", _MAX_ITERATIONS
        )
    return probe.predict(test)


# The function of `(train, labels, test, num_classes, l2)` that classifies, and the default `l2`:
# big_vision's, none, and scikit-learn's.
METHODS = {
    "least-squares": (_least_squares, 1024.0),
    "knn": (_knn, None),
    "linear-probe": (_linear_probe, 1.0),
}
