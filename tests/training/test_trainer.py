"""`keras_vit.training.train`: what it records, and what it refuses."""

import dataclasses
import json

import pytest

import keras_vit
from keras_vit.checkpoints.named_models import model_digest
from keras_vit.core.image_spec import ImageSpec
from keras_vit.data import load
from keras_vit.training import Run
from keras_vit.training.recipe import RECIPES
from keras_vit.training.trainer import recorded_arguments
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import CLASSES, small_data, small_model, small_recipe
from tests.fixtures.tiny import TINY


@pytest.fixture
def fitted(monkeypatch):
    """The calls of the `fit` of runs, which train nothing."""
    calls = []
    monkeypatch.setattr(
        "keras_vit.training.resumable_fit.ResumableFit.fit", lambda *a: calls.append(a[0])
    )
    return calls


@pytest.mark.slow
def test_what_is_fitted_and_recorded(tmp_path, fitted):
    keras_vit.vision_transformer(**TINY).save(tmp_path / "start.keras")
    exclude = tmp_path / "exclude.txt"
    exclude.write_text("digits#7\n")
    workdir = tmp_path / "run"
    run = keras_vit.training.train(
        *("digits_finetune", tmp_path / "start.keras", "digits", workdir),
        classes=CLASSES,
        fraction=0.5,
        exclude=exclude,
        strategy="none",
        resume=True,
        metadata={"note": "half"},
    )
    recorded = json.loads((workdir / "run.json").read_text())
    expected = {
        "recipe": json.loads(json.dumps(dataclasses.asdict(RECIPES["digits_finetune"]))),
        "model": str(tmp_path / "start.keras"),
        **model_digest(tmp_path / "start.keras"),
        "data": "digits",
        "split": "train",
        "validation": "validation",
        "classes": list(CLASSES),
        "exclude": str(exclude),
        "fraction": 0.5,
        "strategy": "none",
        "teacher": None,
        "metadata": {"note": "half"},
        "class_names": list(CLASSES),
        "num_examples": 195,
        "has_ended": True,
    }
    assert {name: recorded[name] for name in expected} == expected
    (fit,) = fitted
    assert (fit.model.input_shape, fit.model.output_shape) == ((None, 24, 24, 3), (None, 3))
    assert (fit.save_steps, fit.states.keep, fit.callbacks, fit.verbose) == (1000, 2, (), "auto")
    assert (workdir / "excluded.txt").read_text() == exclude.read_text()
    assert run == Run(fit.model, [], workdir, RECIPES["digits_finetune"])


@pytest.mark.slow
def test_a_run_is_resumed_by_its_recorded_arguments(tmp_path, fitted):
    small_model(small_recipe()).save(tmp_path / "start.keras")
    begun = (small_recipe(), tmp_path / "start.keras", "digits", tmp_path / "run")
    keras_vit.training.train(*begun, classes=CLASSES, metadata={"note": 1}, save_steps=7)
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    arguments, measurements = recorded_arguments(tmp_path / "run")
    keras_vit.training.train(**arguments, workdir=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == before
    assert measurements == []


@pytest.mark.slow
def test_the_length_of_an_epoch_can_be_given(tmp_path, fitted):
    recipe = small_recipe(steps=None, epochs=3)
    arguments = (recipe, small_model(recipe, 10), "digits", tmp_path / "run")
    keras_vit.training.train(*arguments, fraction=0.1, epoch_examples=2 * recipe.batch_size)
    assert (fitted[0].epochs, fitted[0].batches_per_epoch) == (3, 2)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["num_examples"] < 150


# Options that a model or data would ignore, and outputs that the loss or the classes do not fit.
@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({}, {"strategy": "none"}, "is for a model that is not built yet"),
        ({}, {"dtype": "float32"}, "is for a model that is not built yet"),
        ({}, {"keep_head": True}, "is for a model that is not built yet"),
        ({"num_classes": 5}, {}, "must have a head for .*3 classes"),
        ({"classifier_activation": "softmax"}, {}, "to logits"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(options, changes, message, tmp_path):
    recipe = small_recipe()
    data = {"data": "digits", "classes": CLASSES, "workdir": tmp_path / "run"}
    with pytest.raises(ValueError, match=message):
        keras_vit.training.train(recipe, small_model(recipe, **options), **data, **changes)
    assert not (tmp_path / "run").exists()


def test_given_datasets_are_not_chosen_from(tmp_path):
    recipe = small_recipe()
    arguments = (recipe, small_model(recipe), small_data(recipe), tmp_path / "run")
    with pytest.raises(ValueError, match="`fraction` is for the name of a dataset"):
        keras_vit.training.train(*arguments, fraction=0.5)


@pytest.mark.slow
def test_float16_with_accumulation_is_refused(tmp_path):
    recipe = dataclasses.replace(RECIPES["digits_finetune"], accumulation_steps=2)
    arguments = (recipe, "ViT_Ti16(patch_size=8)", "digits", tmp_path / "run")
    with pytest.raises(ValueError, match="`accumulation_steps` cannot be combined with float16"):
        keras_vit.training.train(*arguments, dtype="mixed_float16")
    assert not (tmp_path / "run").exists()


def test_a_run_that_exists_is_refused_before_its_data_are_read(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("keras_vit.training.trainer.load_training_data", None)
    with pytest.raises(ValueError, match="`workdir` must be a new or empty directory"):
        keras_vit.training.train("digits_finetune", "ViT_Ti16", "digits", tmp_path)


@pytest.mark.slow
def test_how_a_run_is_carried_out_is_recorded_and_is_not_its_identity(tmp_path, fitted):
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
    assert again == {**usual, "save_steps": 7}


@pytest.mark.slow
def test_given_datasets_keep_their_preprocessing_when_a_run_is_resumed(tmp_path):
    recipe = small_recipe(steps=4, warmup_steps=1)
    model = small_model(recipe)
    read = {"image_size": 8, "batch_size": 8, "classes": CLASSES}
    plain, flipped = (load("digits", "train", **read, flip=flip) for flip in (False, "always"))
    keras_vit.training.train(recipe, model, plain, tmp_path / "run")
    with pytest.raises(ValueError, match="settings it was begun with"):
        keras_vit.training.train(recipe, model, flipped, tmp_path / "run", resume=True)


@pytest.mark.slow
def test_the_skipped_images_of_a_run_that_has_ended_stay_recorded(tmp_path):
    root = write_folder(tmp_path / "photos", ("ant", "bee"), count=20)
    for split in ("train", "validation"):
        source = keras_vit.data.find_source(f"folder:{root}", split)
        (root / source.find_id(source.numbers[0])).write_bytes(b"")
    recipe = small_recipe(steps=10, warmup_steps=1)
    model, run = small_model(recipe, num_classes=2), tmp_path / "run"
    for resume in (False, True):
        keras_vit.training.train(recipe, model, f"folder:{root}", run, resume=resume)
        assert len((run / "skipped.txt").read_text().splitlines()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["batches", "dataset"])
def test_given_datasets_get_the_batches_of_the_recipe(form, tmp_path):
    recipe = small_recipe(batch_size=20, label_smoothing=0.1)
    options = {"image_size": 8, "batch_size": 5, "classes": CLASSES}
    pair = [load("digits", split, **options) for split in ("train", "validation")]
    pair = tuple(each if form == "batches" else each.info.dataset for each in pair)
    named = small_data(dataclasses.replace(recipe, min_crop_area=None))
    model = small_model(recipe)
    history = keras_vit.training.train(recipe, model, pair, tmp_path / "given").history
    again = keras_vit.training.train(recipe, small_model(recipe), named, tmp_path / "named").history
    assert len(history) == len(again) and "val_accuracy" in history[-1]
    alone = keras_vit.training.train(
        recipe, small_model(recipe), pair[0], tmp_path / "alone"
    ).history
    assert "val_accuracy" not in alone[-1]


@pytest.mark.slow
def test_a_run_records_the_pixels_of_its_images(tmp_path):
    name = f"folder:{write_folder(tmp_path / 'photos', CLASSES, 20, '.png')}"
    recipe = small_recipe(steps=1, warmup_steps=0, batch_size=4, value_range=(0, 300))
    small_model(recipe).save(tmp_path / "small.keras")
    run = keras_vit.training.train(recipe, tmp_path / "small.keras", name, tmp_path / "run")
    saved = keras_vit.serving.load_runner(run.workdir).image_spec
    assert (saved.channels, saved.value_range) == (3, (0, 300))
    ((images, _),) = load(name, "train", 8, 99, image_spec=saved).as_numpy_iterator()
    (unscaled, _), *_ = load(name, "train", 8, 99).as_numpy_iterator()
    assert (images + 1).max() == pytest.approx((unscaled + 1).max() * 255 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["percentiles", "deviations"])
def test_a_range_is_measured_once_and_recorded(method, tmp_path, monkeypatch):
    name = f"folder:{write_folder(tmp_path / 'photos', CLASSES, 20, '.png')}"
    recipe = small_recipe(steps=2, warmup_steps=0, batch_size=4, value_range=method)
    small_model(recipe).save(tmp_path / "small.keras")
    arguments = recipe, tmp_path / "small.keras", name, tmp_path / "run"
    run = keras_vit.training.train(*arguments)
    source = keras_vit.data.find_source(name, "train")
    expected = keras_vit.data.measure_range(source, method=method)
    recorded = json.loads((run.workdir / "run.json").read_text())["value_range"]
    assert ImageSpec(value_range=recorded).value_range == expected
    # Other images in the folder would have another range.
    monkeypatch.setattr("keras_vit.training.trainer.measure_range", lambda *_: (0.0, 1.0))
    resumed = keras_vit.training.train(*arguments, resume=True)
    for model in (run.model, resumed.model, keras_vit.serving.load_runner(run.workdir)):
        assert model.image_spec.value_range == expected
