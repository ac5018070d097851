"""ImageNet's names are taken without a warning only for a model asked for by a published name."""

import json
import types

import pytest

from keras_vit.checkpoints import save_checkpoint
from keras_vit.checkpoints.configuration.class_names import read_class_names
from keras_vit.cli import main
from keras_vit.models import vision_transformer
from keras_vit.training.runs.class_names import class_names_of
from keras_vit.training.runs.saved_models import recorded_class_names as recorded_names
from keras_vit.training.runs.saved_models import save_model
from tests.fixtures.tiny import TINY

NAMES = ["cat", "dog", "eel"]
HEAD = types.SimpleNamespace(name="head")
MODEL = types.SimpleNamespace(output_shape=(None, 1000), layers=[HEAD])
AUGREG = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.01"


@pytest.mark.parametrize("source", ["ViT_B16/imagenet2012", f"{AUGREG}-res_224"])
def test_published_names(source, caplog):
    assert class_names_of(MODEL, source, is_guessing=False)[0] == "tench"
    assert not caplog.messages


@pytest.mark.parametrize(
    "source",
    [
        "https://example.org/ViT-B_16.npz",
        "gs://vit_models/sam/ViT-B_16.npz",
        "mine/ViT-B_16.npz",
        f"mine/{AUGREG}-res_224.npz",
    ],
)
def test_places_are_warned_of(source, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    assert len(class_names_of(MODEL, source)) == 1000
    assert caplog.messages == [
        f"{source} does not record the names of its classes: as there are 1000, they are taken to "
        "be ImageNet's"
    ]
    assert class_names_of(MODEL, source, is_guessing=False) is None


def test_guessed_names_are_not_recorded(tmp_path):
    model = vision_transformer(**{**TINY, "num_classes": 1000})
    save_checkpoint(model, tmp_path / "mine.npz", "google")
    main(["convert", str(tmp_path / "mine.npz"), str(tmp_path / "mine.keras")])
    assert recorded_names(tmp_path / "mine.keras", 1000) is None


@pytest.fixture
def named(tmp_path):
    """A `.keras` file that records the names of its classes."""
    model = vision_transformer(**TINY, activation="gelu")
    save_model(model, tmp_path / "named.keras", {"class_names": NAMES})
    return tmp_path / "named.keras"


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_converted_names_come_back(to, named, tmp_path):
    main(["convert", str(named), str(tmp_path / to), "--to", to])
    main(["convert", str(tmp_path / to), str(tmp_path / "again.keras")])
    assert recorded_names(tmp_path / "again.keras", 3) == NAMES


@pytest.mark.parametrize("target", ["new.npz", "new.safetensors"])
def test_names_without_a_place_are_told(target, named, tmp_path, capsys):
    main(["convert", str(named), str(tmp_path / target)])
    line = f"{tmp_path / target} does not record the names of the classes"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("names", [["cat", "dog"], ["cat", "Cat", "dog"]])
def test_names_that_do_not_fit_are_not_written(names, tmp_path):
    model = vision_transformer(**TINY, activation="gelu")
    with pytest.raises(ValueError, match="`class_names` must "):
        save_checkpoint(model, tmp_path / "new", "huggingface", names)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"id2label": {"1": "dog", "0": "cat", "2": "eel"}}, ["cat", "dog", "eel"]),
        ({"id2label": {"0": "crane", "1": "cat", "2": "Crane"}}, ["crane (0)", "cat", "Crane (2)"]),
        ({"label_names": ["cat", "dog", "eel"]}, ["cat", "dog", "eel"]),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}, None),
        ({}, None),
    ],
    ids=str,
)
def test_names_of_a_configuration(config, expected, tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_class_names(tmp_path, 3) == expected
    assert read_class_names(tmp_path / "model.safetensors", 3) == expected
    assert read_class_names(tmp_path / "other.npz", 3) is None
    assert not caplog.messages


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        (["cat", "dog"], "names 3 classes"),
        ({"0": "cat", "1": "dog", "3": "eel"}, "strings of one line"),
        (["cat", "dog", 5], "strings of one line"),
        (5, "a list"),
        (["crane", "crane", "crane (0)"], "each be there once"),
        (["ice cream", "cat", "ice  cream"], "not look alike"),
    ],
    ids=str,
)
def test_names_of_other_classes_are_left_out_with_a_warning(names, rule, tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps({"label_names": names}))
    assert read_class_names(tmp_path, 3) is None
    (line,) = caplog.messages
    assert f"The class names in the config.json of {tmp_path} must " in line
    assert rule in line


def test_a_model_without_a_head_has_no_names(tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps({"label_names": NAMES}))
    model = vision_transformer(**{**TINY, "num_classes": 0})
    assert class_names_of(model, tmp_path) is None
    assert not caplog.messages
