"""The names of a model's classes: where they come from, and where they go."""

import json

import keras
import pytest

import keras_vit
from keras_vit.checkpoints import inspect_checkpoint, save_checkpoint
from keras_vit.checkpoints.catalog.augreg import parse_augreg
from keras_vit.checkpoints.catalog.download import cache_path
from keras_vit.cli import main
from keras_vit.core.text import imagenet_class_names
from keras_vit.models import vision_transformer
from keras_vit.training.save_callbacks import save_model
from tests.fixtures.tiny import TINY

NAMES = ["cat", "dog", "eel"]
AUGREG = (
    "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03"
    "-res_224"
)


def names_in(path):
    return inspect_checkpoint(path).class_names


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A file in the cache under the name of a published one with ImageNet's classes."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    model = keras_vit.ViT_Ti16(num_classes=1000)
    model.get_layer("head").kernel.assign_add(keras.ops.ones((192, 1000)))
    path = cache_path(parse_augreg(AUGREG).url)
    path.parent.mkdir(parents=True)
    save_checkpoint(model, path, "google")
    return path


@pytest.mark.slow
def test_published_files_have_imagenets_names(published, tmp_path, caplog):
    model = keras_vit.from_checkpoint(AUGREG)
    assert model.class_names == tuple(imagenet_class_names(1000))
    assert keras_vit.from_checkpoint(AUGREG, num_classes=1000).class_names is None
    assert keras_vit.ViT_Ti16(weights=AUGREG, num_classes=7).class_names is None
    assert not caplog.messages
    # The same bytes elsewhere say nothing of their classes: a number of classes is no name.
    published.rename(tmp_path / "mine.npz")
    assert keras_vit.from_checkpoint(tmp_path / "mine.npz").class_names is None


def test_names_are_checked_when_they_are_set():
    model = vision_transformer(**TINY)
    for wrong in (NAMES[:2], ["cat", "Cat", "dog"]):
        with pytest.raises(ValueError, match="`class_names` must "):
            model.class_names = wrong
    model.class_names = NAMES
    assert model.class_names == tuple(NAMES)


def test_names_travel(tmp_path):
    model = vision_transformer(**TINY, activation="gelu")
    model.class_names = NAMES
    model.save(tmp_path / "model.keras")
    assert names_in(tmp_path / "model.keras") == tuple(NAMES)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.class_names == tuple(NAMES)
    assert keras_vit.resize(loaded, 32).class_names == tuple(NAMES)
    assert keras_vit.replace_head(loaded, 3).class_names is None
    assert keras_vit.from_checkpoint(tmp_path / "model.keras", num_classes=0).class_names is None
    for to in ("timm", "huggingface", "huggingface_tf"):
        save_checkpoint(loaded, tmp_path / to, to)
        assert keras_vit.from_checkpoint(tmp_path / to).class_names == tuple(NAMES)


@pytest.mark.parametrize("target", ["new.npz", "new.safetensors"])
def test_names_without_a_place_are_told(target, tmp_path, capsys):
    save_model(vision_transformer(**TINY, activation="gelu"), tmp_path / "named.keras", NAMES)
    main(["convert", str(tmp_path / "named.keras"), str(tmp_path / target)])
    assert "does not record the names of the classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"id2label": {"1": "dog", "0": "cat", "2": "eel"}}, ("cat", "dog", "eel")),
        ({"id2label": {"0": "crane", "1": "cat", "2": "Crane"}}, ("crane (0)", "cat", "Crane (2)")),
        ({"label_names": ["cat", "dog", "eel"]}, ("cat", "dog", "eel")),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}, None),
        ({}, None),
        # Those that are not names of these classes are left out.
        ({"label_names": ["cat", "dog"]}, None),
        ({"label_names": {"0": "cat", "1": "dog", "3": "eel"}}, None),
        ({"label_names": ["cat", "dog", 5]}, None),
        ({"label_names": ["crane", "crane", "crane (0)"]}, None),
    ],
    ids=str,
)
def test_names_of_a_configuration(config, expected, tmp_path):
    layout = "timm" if "label_names" in config else "huggingface"
    save_checkpoint(vision_transformer(**TINY, activation="gelu"), tmp_path, layout)
    recorded = json.loads((tmp_path / "config.json").read_text())
    recorded.pop("id2label", None)
    (tmp_path / "config.json").write_text(json.dumps(recorded | config))
    assert names_in(tmp_path) == names_in(tmp_path / "model.safetensors") == expected
