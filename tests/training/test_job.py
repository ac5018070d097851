"""`keras_vit.training.train`: what it records, and what it refuses."""

import dataclasses
import importlib
import inspect
import json
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.trained import model_digest
from keras_vit.cli.train import Train
from keras_vit.training import Run, distribution
from keras_vit.training.recipes import RECIPES
from keras_vit.training.runs.run import HANDLING
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe
from tests.fixtures.tiny import TINY


def test_the_function_stays_after_its_module_is_imported():
    job = importlib.import_module("keras_vit.training.job")
    assert keras_vit.training.train is job.train
    assert keras_vit.training.RECIPES is RECIPES
    assert keras_vit.training.fit.fit is job.fit


@pytest.fixture
def fitted(monkeypatch):
    """The arguments of the calls of `fit`, which train nothing."""
    calls = []
    history = [{"epoch": 0}]
    monkeypatch.setattr(
        "keras_vit.training.job.fit", lambda *a, **options: calls.append((*a, options)) or history
    )
    return calls


@pytest.mark.slow
def test_what_is_fitted_and_recorded(tmp_path, monkeypatch, fitted):
    keras_vit.vision_transformer(**TINY).save(tmp_path / "start.keras")
    exclude = tmp_path / "exclude.txt"
    exclude.write_text("digits#7\n")
    scopes, strategy = [], distribution.strategy
    monkeypatch.setattr(distribution, "strategy", lambda *a: scopes.append(a) or strategy(*a))
    run = keras_vit.training.train(
        *("digits_finetune", tmp_path / "start.keras", "digits", tmp_path / "run"),
        classes=CLASSES,
        fraction=0.5,
        exclude=exclude,
        strategy="none",
        resume=True,
        facts={"note": "half"},
    )
    assert scopes == [("none", None)]
    ((recipe, model, (train, validation), workdir, facts, options),) = fitted
    assert facts == {
        "model": str(tmp_path / "start.keras"),
        **model_digest(tmp_path / "start.keras"),
        "data": "digits",
        "split": "train",
        "classes": CLASSES,
        "exclude": str(exclude),
        "dtype": None,
        "fraction": 0.5,
        "strategy": "none",
        "note": "half",
    }
    names = {"resume": True, "save_steps": 1000, "keep": 2, "exclude": exclude}
    assert options == {**names, "teacher": None, "callbacks": (), "verbose": "auto"}
    assert (model.input_shape, model.output_shape) == ((None, 24, 24, 3), (None, 3))
    assert (train.num_examples, validation.num_examples) == (195, 53)
    assert recipe == RECIPES["digits_finetune"]
    assert run == Run(model, [{"epoch": 0}], workdir, recipe)


@pytest.mark.slow
def test_a_head_that_is_kept_is_recorded(tmp_path, fitted):
    model = small_model(small_recipe())
    model.class_names = CLASSES
    model.save(tmp_path / "start.keras")
    arguments = (small_recipe(), tmp_path / "start.keras", "digits", tmp_path / "run")
    keras_vit.training.train(*arguments, classes=CLASSES, keep_head=True)
    kept, facts = fitted[0][1], fitted[0][4]
    assert facts["keep_head"] is True
    head = [to_numpy(m.get_layer("head").kernel) for m in (kept, model)]
    np.testing.assert_array_equal(*head)
    keras_vit.training.train(*arguments, classes=CLASSES)
    assert "keep_head" not in fitted[1][4]


def test_a_head_that_cannot_be_kept_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.training.job.load_training_data", None)
    with pytest.raises(ValueError, match="`keep_head` .* is for a trained model"):
        arguments = ("digits_finetune", "ViT_Ti16(patch_size=8)", "digits", tmp_path / "run")
        keras_vit.training.train(*arguments, keep_head=True)


def test_one_callback(tmp_path, fitted):
    recipe, callback = small_recipe(), keras.callbacks.Callback()
    keras_vit.training.train(
        recipe, small_model(recipe), "digits", tmp_path, classes=CLASSES, callbacks=callback
    )
    assert fitted[0][-1]["callbacks"] == (callback,)


@pytest.mark.slow
def test_the_length_of_an_epoch_can_be_given(tmp_path, fitted):
    recipe = small_recipe()
    arguments = (recipe, small_model(recipe), "digits", tmp_path / "run")
    keras_vit.training.train(*arguments, fraction=0.1, epoch_examples=40)
    assert fitted[0][2][0].num_examples == 40
    assert fitted[0][4]["model"] == arguments[1].name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "finetun"}, "`recipe` must be a `Recipe` or one of .*recipe='finetun'"),
        ({"strategy": "none"}, "are for a model that is not built yet.*strategy='none'"),
        ({"dtype": "float32"}, "are for a model that is not built yet.*dtype='float32'"),
        ({"keep_head": True}, "are for a model that is not built yet.*keep_head=True"),
        ({"data": "cifar10"}, "`classes` is for .*name='cifar10'"),
        ({"verbose": 3}, "`verbose` must be one of .*verbose=3"),
    ],
)
def test_wrong_arguments(changes, message, tmp_path):
    recipe = small_recipe()
    arguments = {"recipe": recipe, "model": small_model(recipe), "data": "digits", **changes}
    with pytest.raises(ValueError, match=message):
        keras_vit.training.train(**arguments, workdir=tmp_path / "run", classes=CLASSES)
    assert not (tmp_path / "run").exists()


def test_float16_with_accumulation_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.training.job.load_training_data", None)
    recipe = dataclasses.replace(RECIPES["digits_finetune"], accumulation_steps=2)
    with pytest.raises(ValueError, match="`accumulation_steps` cannot be combined with float16"):
        keras_vit.training.train(
            recipe, "ViT_Ti16(patch_size=8)", "digits", tmp_path, dtype="mixed_float16"
        )


def test_a_run_that_exists_is_refused_before_its_data_are_read(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("keras_vit.training.job.load_training_data", None)
    with pytest.raises(ValueError, match="`workdir` must be a new or empty directory"):
        keras_vit.training.train("digits_finetune", "ViT_Ti16", "digits", tmp_path)


def test_a_directory_that_cannot_be_written_is_found_before_the_data_are_read(
    tmp_path, monkeypatch
):
    # Root may write everywhere.
    monkeypatch.setattr("keras_vit.training.runs.run.os.access", lambda path, mode: False)
    monkeypatch.setattr("keras_vit.training.job.load_training_data", None)
    message = re.escape(f"that can be written. Received: workdir={str(tmp_path / 'a/b')!r} (no ")
    with pytest.raises(ValueError, match=f"{message}permission for {re.escape(str(tmp_path))}"):
        keras_vit.training.train("digits_finetune", "ViT_Ti16", "digits", tmp_path / "a/b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "ViT_Ti61"}, "`model` must be an existing file or directory"),
        ({"model": "nowhere.keras"}, "`model` must be an existing file"),
        ({"model": "ViT_Ti16"}, "`image_size` must be a multiple of .*Received: .*24, 24"),
        ({"model": "nowhere.npz"}, "must be an existing file"),
        (
            {"model": "ViT_Ti16(patch_size=8)", "teacher": "nowhere.keras"},
            "`teacher` must be a trained model",
        ),
    ],
)
def test_a_wrong_model_is_refused_before_the_data_are_read(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_vit.training.job.load_training_data", None)
    with pytest.raises(ValueError, match=message):
        keras_vit.training.train("digits_finetune", data="digits", workdir=tmp_path, **arguments)


@pytest.mark.parametrize("data", [(np.zeros(3), np.zeros(3)), None, 3], ids=str)
def test_data_must_be_a_name(data, tmp_path):
    with pytest.raises(ValueError, match="`data` must be the name of a dataset, such as 'digits'"):
        keras_vit.training.train("digits_finetune", "ViT_Ti16", data, tmp_path)


def test_a_built_model_of_another_size(tmp_path):
    recipe = small_recipe()
    model = small_model(recipe)
    larger = dataclasses.replace(recipe, image_size=2 * recipe.image_size)
    with pytest.raises(ValueError, match=r"`image_size` of the recipe must be .*keras_vit.resize"):
        keras_vit.training.train(larger, model, "digits", tmp_path)


def test_a_run_of_other_settings_is_refused_before_its_data_are_read(tmp_path):
    recipe = small_recipe()
    settings = dataclasses.asdict(recipe)
    (tmp_path / "run.json").write_text(json.dumps({"recipe": settings}))
    changed = dataclasses.replace(recipe, seed=7)
    with pytest.raises(ValueError, match="settings it was begun with. Received: seed=7 instead"):
        keras_vit.training.train(
            changed, "ViT_Ti16(patch_size=4)", "folder:none", tmp_path, resume=True
        )
    with pytest.raises(ValueError, match="folder:none"):
        keras_vit.training.train(
            recipe, "ViT_Ti16(patch_size=4)", "folder:none", tmp_path, resume=True
        )


@pytest.mark.slow
def test_how_a_run_is_carried_out_is_recorded_and_is_not_its_identity(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.training.fit.ResumableFit.fit", lambda *arguments: [])
    runs, recipe = [], small_recipe(steps=2, warmup_steps=1)
    model = tmp_path / "start.keras"
    small_model(recipe).save(model)
    handling = {"save_steps": 5, "keep": 3, "max_skipped": 0.5, "data_dir": str(tmp_path)}
    for workdir, options in ((tmp_path / "a", {}), (tmp_path / "b", handling)):
        keras_vit.training.train(recipe, model, "digits", workdir, classes=CLASSES, **options)
        runs.append(json.loads((workdir / "run.json").read_text()))
    usual, unusual = runs
    assert unusual == {**usual, **handling}
    # It may change, and what it is now is recorded.
    options = {"classes": CLASSES, "resume": True, "save_steps": 7}
    keras_vit.training.train(recipe, model, "digits", tmp_path / "b", **options)
    again = json.loads((tmp_path / "b" / "run.json").read_text())
    assert again == {**usual, "has_ended": True, "save_steps": 7}


def test_defaults_of_what_is_not_recorded_are_those_of_train():
    for function in (keras_vit.training.train, Train):
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in HANDLING} == HANDLING
