"""Runs of `fit`: their directory, what stops them, and what they leave."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest

from keras_vit.checkpoints.run_files import find_model, read_run
from keras_vit.models import vision_transformer
from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import NotFiniteError
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.starting_model import make_model
from keras_vit.training.states import States
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import (
    CLASSES,
    small_data,
    small_fit,
    small_model,
    small_recipe,
    smoke,
)
from tests.fixtures.tiny import TINY

# Softmax and sigmoid under AdamW. The paper's SGD and masked patches are trained by tests below,
# and what else recipes differ in has tests of its own.
QUICK = ("pretrain", "augreg_imagenet21k")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.large)
        for name in RECIPES
        # Its images have masks.
        if name != "segment"
    ],
)
def test_smoke_recipe_trains(name, tmp_path):
    recipe = smoke(RECIPES[name])
    teacher = small_model(recipe) if name.startswith("function_matching") else None
    history = small_fit(tmp_path / "run", recipe, teacher=teacher)
    assert all(np.isfinite(metrics["loss"]) for metrics in history)


@pytest.mark.slow
def test_float16_gets_loss_scaling(tmp_path):
    recipe = small_recipe()
    options = {**TINY, "image_size": 8, "dtype": "mixed_float16"}
    optimizer = make_optimizer(recipe, vision_transformer(**options), 100)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    model = vision_transformer(**options)
    history = small_fit(tmp_path / "run", recipe, model)
    assert all(np.isfinite(metrics["loss"]) for metrics in history)
    assert 0 < history[-1]["gradient_norm"] < 100
    assert np.abs(to_numpy(model.get_layer("head").kernel.value)).max() > 0


@pytest.mark.slow
def test_a_kept_head_is_measured_before_the_first_step(tmp_path, caplog):
    caplog.set_level("INFO")
    recipe, histories = small_recipe(), []
    start = small_model(recipe)
    start.class_names = CLASSES
    start.save(tmp_path / "start.keras")
    for name in ("new", "kept"):
        assert "before the first step" not in caplog.text
        options = {"classes": CLASSES, "keep_head": name == "kept"}
        run = train(recipe, tmp_path / "start.keras", "digits", tmp_path / name, **options)
        histories.append(run.history)
    # A head of zeros gives the three classes the same probability; the first one is chosen.
    labels = np.concatenate(
        [labels for _, labels in small_data(recipe)[1].batches().as_numpy_iterator()]
    )
    accuracy, loss = np.mean(labels == 0), np.log(3)
    text = f"before the first step: val_accuracy: {accuracy:.4f} - val_loss: {loss:.4f}"
    assert text in caplog.text
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_run_directory(tmp_path, monkeypatch):
    recipe = small_recipe()
    model = small_model(recipe)
    # A name of one part, as many give it.
    monkeypatch.chdir(tmp_path)
    run = pathlib.Path("digits")
    history = small_fit(run, recipe, model)
    files = "best.keras last.keras metrics.jsonl run.json states tensorboard"
    assert sorted(path.name for path in run.iterdir()) == files.split()
    metadata = json.loads((run / "run.json").read_text())
    assert metadata["recipe"] == json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert metadata["class_names"] == list(CLASSES)
    assert read_run(find_model(run)) == metadata
    assert find_model(run) == run / "best.keras"
    last = load_model(run / "last.keras")
    for saved, trained in zip(last.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(saved.value), to_numpy(trained.value))
    assert [metrics["epoch"] for metrics in history] == [0, 1]
    assert all(0 < metrics["gradient_norm"] < np.inf for metrics in history)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history
    assert list((run / "tensorboard").rglob("events.out.tfevents.*"))
    assert make_model(recipe, "digits", num_classes=5).output_shape == (None, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 5}, "`model` must have a head of .*3 classes.*5 outputs"),
        ({"classifier_activation": "softmax"}, "`model` must map RGB images to logits"),
    ],
)
def test_a_wrong_head(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        small_fit(tmp_path / "run", model=small_model(small_recipe(), **options))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_workdir_is_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="`workdir` must be a new or empty directory"):
        small_fit(tmp_path)
    with pytest.raises(FileExistsError):
        small_fit(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_too_many_undecodable_images_stop_a_run(tmp_path):
    photos = write_folder(tmp_path / "photos", count=20)
    for path in sorted(photos.rglob("*.jpg"))[3:]:
        path.write_bytes(b"")
    recipe = small_recipe()
    data = load_training_data(recipe, f"folder:{photos}")
    with pytest.raises(ValueError, match="At most a share of 0.1 of the images may be skipped"):
        train(recipe, small_model(recipe, num_classes=2), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_loss_that_is_not_finite(tmp_path):
    recipe = small_recipe(learning_rate=1e30, clip_norm=None)
    message = (
        r"Losses and gradients must stay finite; try a smaller `learning_rate`. "
        r"Received: .*=(inf|nan)$"
    )
    with pytest.raises(ValueError, match=message):
        small_fit(tmp_path / "run", recipe, save_steps=1)
    for array in States(tmp_path / "run" / "states", keep=2).load()[0].values():
        assert np.isfinite(array).all()


@pytest.mark.slow
def test_a_validation_loss_that_is_not_finite(tmp_path):
    """Its loss is finite until the last update."""
    recipe = small_recipe(learning_rate=1e38, clip_norm=None, steps=1, warmup_steps=0)
    with pytest.raises(NotFiniteError, match="must stay finite.*val_loss="):
        small_fit(tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_averages_are_evaluated_and_weights_go_on(tmp_path):
    recipe = small_recipe(ema_momentum=0.5)
    data = small_data(recipe)
    history = train(recipe, small_model(recipe), data, tmp_path / "run").history
    averaged, last = (
        load_model(tmp_path / "run" / f"{name}.keras") for name in ("averaged", "last")
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loaded, is_same in ((averaged, True), (last, False)):
        loaded.compile(loss=loss)
        assert (
            loaded.evaluate(data[1].batches()) == pytest.approx(history[-1]["val_loss"])
        ) == is_same


@pytest.mark.slow
def test_without_a_validation_split_the_last_model_is_the_best(tmp_path):
    recipe = small_recipe()
    data = small_data(recipe, split="train+validation", validation=None)
    history = train(recipe, small_model(recipe), data, tmp_path / "run").history
    assert not any(name.startswith("val_") for name in history[-1])
    best, last = (load_model(tmp_path / "run" / f"{name}.keras") for name in ("best", "last"))
    for ours, theirs in zip(best.weights, last.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(theirs.value))
