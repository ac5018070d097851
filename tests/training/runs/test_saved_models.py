"""The names of classes belong to a model file, and a run's facts to the models that it saved."""

import json
import shutil

import keras
import numpy as np
import pytest
from keras_vit.checkpoints.trained.loading import load_trained, recorded_class_names, run_of

from keras_vit.checkpoints.runs import MODELS, read_run
from keras_vit.cli import main
from keras_vit.models import resnet, vision_transformer
from keras_vit.models.files import load_model
from keras_vit.training.runs.saved_models import save_model
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
        assert recorded_class_names(path, 2) == ["cat", "dog"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "evaluate", "export"])
def test_another_model_under_the_name_of_a_runs_is_refused(
    command, workdir, photo, tmp_path, capsys
):
    another_model().save(workdir / "best.keras")
    more = {"predict": [photo], "evaluate": [], "export": [tmp_path / "out"]}[command]
    error = error_of(capsys, command, workdir, *more)
    assert "must be the model that the run saved" in error
    assert "best.keras" in error


@pytest.mark.slow
def test_a_model_of_another_run_is_refused(workdir, tmp_path):
    save_model(another_model(), workdir / "best.keras", {"run": "x", "class_names": ["a", "b"]})
    with pytest.raises(ValueError, match="must be the model that the run saved"):
        run_of(workdir / "best.keras")


@pytest.mark.slow
def test_a_file_next_to_a_run_is_not_the_runs(workdir, photo, capsys):
    another_model(3).save(workdir / "mine.keras")
    assert run_of(workdir / "mine.keras") == {}
    assert recorded_class_names(workdir / "mine.keras", 3) is None
    out = run(capsys, "predict", workdir / "mine.keras", photo)
    assert "cat 3" not in out
    assert " 2 " in out


@pytest.mark.slow
def test_names_go_with_the_file(workdir, finished, tmp_path, capsys):
    shutil.copy(workdir / "best.keras", tmp_path / "elsewhere.keras")
    assert recorded_class_names(tmp_path / "elsewhere.keras", 2) == ["cat", "dog"]
    main(["convert", str(workdir), str(tmp_path / "converted.keras"), "--image-size", "24"])
    photo = finished / "photos" / "dog" / "0.jpg"
    capsys.readouterr()
    for path in (workdir, tmp_path / "elsewhere.keras", tmp_path / "converted.keras"):
        assert "dog" in run(capsys, "predict", path, photo)


@pytest.mark.slow
def test_a_marked_file_is_an_ordinary_keras_file(workdir):
    loaded = keras.models.load_model(workdir / "best.keras")
    expected = load_model(workdir / "best.keras")
    images = np.zeros((1, 16, 16, 3), "float32")
    np.testing.assert_array_equal(loaded(images), expected(images))


@pytest.mark.slow
def test_a_run_of_version_0_1_is_trusted_if_its_names_fit(workdir, photo, capsys):
    # It had no id.
    facts = read_run(workdir / "best.keras")
    del facts["id"]
    (workdir / "run.json").write_text(json.dumps(facts))
    model = load_model(workdir / "best.keras")
    model.save(workdir / "best.keras")
    assert recorded_class_names(workdir / "best.keras", 2) == ["cat", "dog"]
    another_model(3).save(workdir / "best.keras")
    error = error_of(capsys, "predict", workdir, photo)
    assert "as many outputs as its run has class names" in error


@pytest.mark.parametrize(
    "text", ["[]", '"recipe"', '{"recipe": 5}', '{"class_names": "cat"}', '{"id": null}', "", "{"]
)
def test_a_damaged_run_file(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="The `run.json` of a run must be .*Received: .*run.json"):
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


@pytest.mark.parametrize("names", ["ab", 2, ["cat", 5]])
def test_names_that_are_no_list_of_strings_are_refused(names, tmp_path):
    path = tmp_path / "model.keras"
    model = another_model()
    # A plain model, whose names nothing checks.
    plain = keras.Model(model.input, model.output)
    save_model(plain, path, {"run": None, "class_names": names})
    with pytest.raises(ValueError, match="must be a list of strings. Received: '.*model.keras'"):
        recorded_class_names(path, 2)


def test_a_model_of_any_size_needs_one(tmp_path):
    path = tmp_path / "any.keras"
    model = resnet((1, 1), 32, num_classes=2, image_size=32)
    keras.models.clone_model(model, input_tensors=keras.Input((None, None, 3))).save(path)
    with pytest.raises(ValueError, match="`image_size` .* must be given for a model of any size"):
        load_trained(path)
    assert load_trained(path, image_size=32).input_shape == (None, 32, 32, 3)


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


@pytest.mark.parametrize("command", ["evaluate", "predict", "export"])
def test_a_run_that_was_stopped_before_its_first_evaluation(command, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    more = {"evaluate": [], "predict": [__file__], "export": [tmp_path / "out"]}[command]
    error = error_of(capsys, command, tmp_path / "run", *more)
    assert f"`keras-vit train --resume --workdir {tmp_path}/run` goes on" in error
    another_model().save(tmp_path / "run" / "last.keras")
    assert error_of(capsys, command, tmp_path / "run", *more).endswith("run/last.keras'")
