"""The names of classes belong to a model file, and a run's facts to the models that it saved."""

import shutil

import keras
import pytest

from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.checkpoints.run_files import read_run, run_of
from keras_vit.cli import main
from keras_vit.models import vision_transformer
from keras_vit.training.save_callbacks import save_model
from keras_vit.training.starting_model import make_model
from tests.fixtures.commands import error_of, run
from tests.fixtures.small_runs import small_recipe
from tests.fixtures.tiny import TINY


@pytest.fixture
def workdir(finished, tmp_path):
    return shutil.copytree(finished / "run", tmp_path / "run")


@pytest.fixture
def photo(finished):
    return finished / "photos" / "dog" / "0.jpg"


@pytest.mark.slow
def test_a_file_next_to_a_run_does_not_have_its_facts(workdir):
    vision_transformer(**TINY).save(workdir / "mine.keras")
    for path in workdir.glob("*.keras"):
        expected = () if path.stem == "mine" else ("cat", "dog")
        assert tuple(run_of(path).get("class_names", ())) == expected
        assert (inspect_checkpoint(path).class_names or ()) == expected


@pytest.mark.slow
def test_names_of_classes_go_with_the_file(workdir, photo, tmp_path, capsys):
    shutil.copy(workdir / "best.keras", tmp_path / "elsewhere.keras")
    main(["convert", str(workdir), str(tmp_path / "converted.keras"), "--image-size", "24"])
    capsys.readouterr()
    for path in (workdir, tmp_path / "elsewhere.keras", tmp_path / "converted.keras"):
        assert "dog" in run(capsys, "predict", path, photo)


@pytest.mark.parametrize("text", ["[]", "{"])
def test_a_damaged_run_file_is_refused(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="run.json' must hold "):
        read_run(tmp_path / "best.keras")


@pytest.mark.slow
def test_labels_of_an_export_must_fit_its_outputs(workdir, photo, tmp_path, capsys):
    main(["export", str(workdir), str(tmp_path / "out")])
    (tmp_path / "out" / "1" / "assets" / "labels.txt").write_text("cat\ndog\nbird\n")
    error = error_of(capsys, "predict", tmp_path / "out", photo)
    assert "with one name per class" in error


def test_a_model_that_scales_pixels_itself_is_refused(tmp_path):
    model = vision_transformer(**TINY)
    pixels = keras.Input((16, 16, 3))
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(pixels)
    path = tmp_path / "scaled.keras"
    keras.Model(pixels, model(scaled)).save(path)
    for load in (load_trained, lambda path: make_model(small_recipe(), path, num_classes=3)):
        with pytest.raises(ValueError, match="which scales pixels itself"):
            load(path)


@pytest.mark.parametrize("whole", [False, True])
def test_a_saved_model_keeps_what_is_frozen(whole, tmp_path):
    tiny = vision_transformer(**TINY)
    tiny.trainable = not whole
    tiny.get_layer("block_0").trainable = whole
    save_model(tiny, tmp_path / "saved.keras")
    loaded = keras.models.load_model(tmp_path / "saved.keras")
    assert loaded.trainable == tiny.trainable
    assert [v.trainable for v in loaded.weights] == [v.trainable for v in tiny.weights]
    assert tiny.trainable == (not whole)
