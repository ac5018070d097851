"""The images that the starting model of a run was trained on."""

import json
import logging
import shutil

import pytest

import keras_vit
from keras_vit.checkpoints.trained import load_trained
from keras_vit.cli import main
from keras_vit.models import vision_transformer
from keras_vit.training.runs.saved_models import images_trained_before
from keras_vit.training.runs.trained_on import TRAINED_BEFORE, images_trained_on
from keras_vit.training.starting_model import make_model
from tests.fixtures.commands import run, train_arguments
from tests.fixtures.images import write_folder
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import small_data, small_fit, small_recipe
from tests.fixtures.tiny import TINY
from tests.training.runs.recorded import images_of, trained_ids


@pytest.mark.slow
def test_a_run_knows_what_its_model_was_trained_on_before(root, tmp_path, capsys, caplog):
    flowers = write_folder(tmp_path / "flowers", ("rose", "tulip"), count=10, suffix=".png")
    main(train_arguments(root / "run", flowers, tmp_path / "second"))
    assert trained_ids(root) < set(images_trained_on(tmp_path / "second").ids)
    assert (tmp_path / "second" / TRAINED_BEFORE).exists()
    # What a third run would record as trained on before.
    both = images_trained_before(load_trained(tmp_path / "second"))
    assert both == images_trained_on(tmp_path / "second")
    capsys.readouterr()
    photo = root / "photos" / min(trained_ids(root))
    for id in images_of(flowers, "test").ids:
        shutil.copy(photo, flowers / id)
    run(capsys, "evaluate", tmp_path / "second")
    assert "4 of the 4 images were trained on" in caplog.text


WAYS = {
    "make_model": lambda run: make_model(small_recipe(), run, num_classes=3),
    "load_trained": load_trained,
    "resize": lambda run: keras_vit.resize(load_trained(run), 24),
    "replace_head": lambda run: keras_vit.replace_head(load_trained(run), 5),
    "from_checkpoint": lambda run: keras_vit.from_checkpoint(run / "best.keras", num_classes=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_a_run_leads_to_its_images(finished, way):
    assert images_trained_before(WAYS[way](finished / "run")) == images_trained_on(finished / "run")


@pytest.mark.slow
def test_weights_of_another_file_are_of_that_file(finished):
    model = keras_vit.replace_head(load_trained(finished / "run"), TINY["num_classes"])
    keras_vit.load_checkpoint(model, finished / "start.keras")
    assert images_trained_before(model) is None


@pytest.mark.slow
def test_a_run_from_python_records_what_its_model_was_trained_on_before_even_after_a_failure(
    finished, tmp_path, monkeypatch
):
    recipe = small_recipe(steps=2, warmup_steps=1)
    model = make_model(recipe, finished / "run", num_classes=3)
    with monkeypatch.context() as patched, pytest.raises(TypeError):
        patched.setattr("keras_vit.training.fit.ResumableFit.fit", None)
        small_fit(tmp_path / "second", recipe, model)
    small_fit(tmp_path / "second", recipe, model)
    found = images_trained_on(tmp_path / "second")
    assert set(found.ids) == trained_ids(finished) | set(small_data(recipe)[0].fingerprints().ids)
    # The model itself was trained further.
    assert images_trained_before(model) == found


@pytest.mark.slow
def test_runs_of_models_with_other_training_images_have_other_ids(finished, tmp_path, monkeypatch):
    # The id is written before training.
    monkeypatch.setattr("keras_vit.training.fit.ResumableFit.fit", lambda *arguments: [])
    ids = []
    for name, before in (("a", None), ("b", None), ("c", images_trained_on(finished / "run"))):
        recipe = small_recipe(steps=2, warmup_steps=1)
        small_fit(tmp_path / name, recipe, trained_before=before)
        ids.append(json.loads((tmp_path / name / "run.json").read_text())["id"])
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "level", "message"),
    [
        (lambda root: root / "start.keras", "INFO", "does not record the images"),
        (lambda root: case_path("a_vit_token"), "INFO", "does not record the images"),
        (lambda root: root / "alone.keras", "INFO", "does not record the images"),
        (lambda root: root / "gone.keras", "WARNING", "is not there"),
    ],
)
def test_a_start_without_a_record_is_logged(root, caplog, source, level, message):
    for name in ("alone", "gone"):
        shutil.copy(root / "run" / "best.keras", root / f"{name}.keras")
    model = keras_vit.from_checkpoint(source(root))
    (root / "gone.keras").unlink()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="keras_vit"):
        assert images_trained_before(model) is None
    (record,) = caplog.records
    assert record.levelname == level
    assert message in record.getMessage()


def test_new_and_published_weights_are_not_logged(caplog, monkeypatch):
    loading = "keras_vit.checkpoints.load"
    monkeypatch.setattr(f"{loading}.is_published", lambda file: True)
    with caplog.at_level(logging.INFO, logger="keras_vit"):
        assert images_trained_before(vision_transformer(**TINY)) is None
        assert images_trained_before(keras_vit.from_checkpoint(case_path("a_vit_token"))) is None
    assert "does not record" not in caplog.text
