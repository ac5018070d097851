"""Runs of `fit`: their directory, what stops them, and what they leave."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_vit.checkpoints.run_files import find_model, read_run
from keras_vit.models.keras_files import load_model
from keras_vit.training.callbacks import NotFiniteError
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.states import States
from keras_vit.training.trainer import load_training_data, train
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import small_data, small_fit, small_model, small_recipe, smoke
from tests.fixtures.stopped import assert_same_variables

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
    model = small_model(small_recipe(), dtype="mixed_float16")
    optimizer = make_optimizer(small_recipe(), model, 100)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    history = small_fit(tmp_path / "run", model=model)
    assert 0 < history[-1]["gradient_norm"] < 100
    assert np.abs(to_numpy(model.get_layer("head").kernel.value)).max() > 0


@pytest.mark.slow
def test_a_run_leaves_its_models_and_facts_in_its_directory(tmp_path, monkeypatch):
    recipe = small_recipe()
    model = small_model(recipe)
    # A name of one part, as many give it.
    monkeypatch.chdir(tmp_path)
    run = pathlib.Path("digits")
    history = small_fit(run, recipe, model)
    files = "best.keras last.keras metrics.jsonl run.json states tensorboard"
    assert sorted(path.name for path in run.iterdir()) == files.split()
    assert read_run(find_model(run)) == json.loads((run / "run.json").read_text())
    assert find_model(run) == run / "best.keras"
    last = load_model(run / "last.keras")
    assert_same_variables(last.weights, model.weights)
    assert [metrics["epoch"] for metrics in history] == [0, 1]
    assert all(0 < metrics["gradient_norm"] < np.inf for metrics in history)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history
    assert list((run / "tensorboard").rglob("events.out.tfevents.*"))


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
def test_a_loss_that_is_not_finite_stops_a_run_before_its_state_is_saved(tmp_path):
    recipe = small_recipe(learning_rate=1e30, clip_norm=None)
    with pytest.raises(NotFiniteError, match="must stay finite"):
        small_fit(tmp_path / "run", recipe, save_steps=1)
    for array in States(tmp_path / "run" / "states", keep=2).load()[0].values():
        assert np.isfinite(array).all()


@pytest.mark.slow
def test_a_validation_loss_that_is_not_finite_stops_a_run(tmp_path):
    """Its loss is finite until the last update."""
    recipe = small_recipe(learning_rate=1e38, clip_norm=None, steps=1, warmup_steps=0)
    with pytest.raises(NotFiniteError, match="val_loss="):
        small_fit(tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_averages_are_evaluated_and_weights_go_on(tmp_path):
    recipe = small_recipe(ema_momentum=0.5)
    data = small_data(recipe)
    history = train(recipe, small_model(recipe), data, tmp_path / "run").history
    for name, is_same in (("averaged", True), ("last", False)):
        loaded = load_model(tmp_path / "run" / f"{name}.keras")
        loaded.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        loss = loaded.evaluate(data[1].batches())
        assert (loss == pytest.approx(history[-1]["val_loss"])) == is_same


@pytest.mark.slow
def test_without_a_validation_split_the_last_model_is_the_best(tmp_path):
    recipe = small_recipe()
    data = small_data(recipe, split="train+validation", validation=None)
    history = train(recipe, small_model(recipe), data, tmp_path / "run").history
    assert not any(name.startswith("val_") for name in history[-1])
    best, last = (load_model(tmp_path / "run" / f"{name}.keras") for name in ("best", "last"))
    assert_same_variables(best.weights, last.weights)
