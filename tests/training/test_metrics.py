"""Metrics of an epoch, compared with scikit-learn's."""

import keras
import numpy as np
import pytest
import sklearn.metrics

from keras_vit.training.losses import BalancedAccuracy


@pytest.mark.parametrize("are_soft", [False, True])
def test_balanced_accuracy_is_scikit_learns(are_soft):
    rng = np.random.default_rng(0)
    # Class 3 has no image.
    labels, logits = rng.choice(3, size=50, p=[0.7, 0.2, 0.1]), rng.normal(size=(50, 4))
    metric = BalancedAccuracy(num_classes=4)
    for start in (0, 20):
        part = slice(start, start + 20 if start == 0 else 50)
        given = np.eye(4)[labels[part]] if are_soft else labels[part]
        metric.update_state(given, logits[part].astype("float32"))
    predicted = logits.argmax(axis=1)
    found = predicted[np.isin(labels, labels)]
    recalls = sklearn.metrics.recall_score(labels, found, average=None, labels=[0, 1, 2])
    assert float(metric.result()) == pytest.approx(recalls.mean(), abs=1e-6)


def test_images_of_weight_0_do_not_count():
    metric = BalancedAccuracy(num_classes=2)
    metric.update_state([0, 1], [[1.0, 0.0], [1.0, 0.0]], sample_weight=[1.0, 0.0])
    assert float(metric.result()) == 1.0
    assert BalancedAccuracy.from_config(metric.get_config()).num_classes == 2
    assert keras.saving.get_registered_object("keras_vit>BalancedAccuracy") is BalancedAccuracy
