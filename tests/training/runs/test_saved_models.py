"""The names of classes belong to a model file, and a run's facts to the models that it saved."""

import shutil

import keras
import pytest

from keras_vit.checkpoints import inspect_checkpoint
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.checkpoints.run_files import MODELS, read_run, run_of
from keras_vit.cli import main
from keras_vit.models import vision_transformer
from keras_vit.training.save_callbacks import save_model
from keras_vit.training.starting_model import make_model
from tests.fixtures.commands import error_of, run
from tests.fixtures.small_runs import small_model, small_recipe
from tests.fixtures.tiny import TINY


@pytest.fixture
def workdir(finished, tmp_path):
    return shutil.copytree(finished / "run", tmp_path / "run")


@pytest.fixture
def photo(finished):
    return finished / "photos" / "cat" / "0.jpg"


def another_model(num_classes=2):
    return vision_transformer(**{**TINY, "num_classes": num_classes})


@pytest.mark.slow
def test_a_runs_own_models_have_its_facts(workdir):
    assert {path.name for path in workdir.glob("*.keras")} <= set(MODELS)
    for path in workdir.glob("*.keras"):
        assert run_of(path)["class_names"] == ["cat", "dog"]
        assert inspect_checkpoint(path).class_names == ("cat", "dog")


@pytest.mark.slow
def test_a_file_next_to_a_run_is_not_the_runs(workdir, photo, capsys):
    another_model(3).save(workdir / "mine.keras")
    assert run_of(workdir / "mine.keras") == {}
    assert inspect_checkpoint(workdir / "mine.keras").class_names is None
    out = run(capsys, "predict", workdir / "mine.keras", photo)
    assert "cat 3" not in out
    assert " 2 " in out


@pytest.mark.slow
def test_names_go_with_the_file(workdir, finished, tmp_path, capsys):
    shutil.copy(workdir / "best.keras", tmp_path / "elsewhere.keras")
    assert inspect_checkpoint(tmp_path / "elsewhere.keras").class_names == ("cat", "dog")
    main(["convert", str(workdir), str(tmp_path / "converted.keras"), "--image-size", "24"])
    photo = finished / "photos" / "dog" / "0.jpg"
    capsys.readouterr()
    for path in (workdir, tmp_path / "elsewhere.keras", tmp_path / "converted.keras"):
        assert "dog" in run(capsys, "predict", path, photo)


@pytest.mark.parametrize("text", ["[]", '"recipe"', "", "{"])
def test_a_damaged_run_file(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="run.json' must hold "):
        read_run(tmp_path / "best.keras")


@pytest.mark.slow
def test_labels_of_an_export_must_fit_its_outputs(workdir, photo, tmp_path, capsys):
    main(["export", str(workdir), str(tmp_path / "out")])
    labels = tmp_path / "out" / "1" / "assets" / "labels.txt"
    capsys.readouterr()
    for names in ("cat\n", "cat\ndog\nbird\n"):
        labels.write_text(names)
        error = error_of(capsys, "predict", tmp_path / "out", photo)
        assert "as many outputs as its classes have names" in error


def test_a_model_that_scales_pixels_itself_is_refused(tmp_path):
    model = vision_transformer(**TINY)
    pixels = keras.Input((16, 16, 3))
    scaled = keras.layers.Rescaling(1 / 127.5, -1)(pixels)
    path = tmp_path / "scaled.keras"
    keras.Model(pixels, model(scaled)).save(path)
    for load in (load_trained, lambda path: make_model(small_recipe(), path, num_classes=3)):
        with pytest.raises(ValueError, match="images in .-1, 1., .* which scales pixels itself"):
            load(path)


def test_a_failed_save_leaves_the_old_model(tmp_path, monkeypatch):
    model = small_model(small_recipe())
    path = tmp_path / "model.keras"
    save_model(model, path)
    before = path.read_bytes()

    def fail(model, target):
        target.write_bytes(b"half a model")
        raise OSError("No space left on device")

    monkeypatch.setattr(keras.Model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        save_model(model, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


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
