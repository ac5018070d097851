"""Names that the docstrings' examples use without importing them."""

import os

import pytest

# Otherwise OpenVINO and NNCF send usage statistics, from processes that they fork.
os.environ.setdefault("CI", "true")


def pytest_ignore_collect(collection_path, config):
    import keras

    wings = [config.rootpath / "keras_vit" / n for n in ("cli", "data", "experiments", "serving")]
    if keras.backend.backend() != "tensorflow" and collection_path in wings:
        # As their tests: tf.data and files are the same on every backend, and TensorFlow serves.
        return True
    return None


# Examples that take a second or more: trainings, exports, evaluations.
SLOW_EXAMPLES = {
    "checkpoints.catalog.push.model_card",
    "checkpoints.save.save_checkpoint",
    "data.deduplication.copies.find_groups",
    "data.deduplication.copies.find_duplicates",
    "evaluation.extraction.extract_features",
    "evaluation.fewshot.evaluate_fewshot",
    "evaluation.fewshot.FewshotAccuracy",
    "evaluation.segmentation.segment",
    "evaluation.feature_store.read_features",
    "experiments.sweep.train_seeds",
    "experiments.model_and_data.open_trained",
    "experiments.vtab_run.vtab",
    "inspection.analyses.attention_maps",
    "inspection.analyses.attention_distance",
    "inspection.analyses.attention_rollout",
    "models.dense.backbone",
    "models.dense.segmenter",
    "models.features.features",
    "serving.export.export",
    "serving.predictor.Predictor",
    "serving.runner.load_runner",
    "training.callbacks.MeasureRegularly",
    "training.trainer.train",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        is_example = isinstance(item, pytest.DoctestItem)
        if is_example and item.name.removeprefix("keras_vit.") in SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace, tmp_path):
    import keras
    import numpy as np

    import keras_vit

    doctest_namespace.update(keras=keras, keras_vit=keras_vit, np=np, tmp_path=tmp_path)
