"""ImageNet's names are taken without a warning only for a model asked for by a published name."""

import types

import pytest

from keras_vit.cli import main
from keras_vit.cli.convert import class_names_of
from keras_vit.models import vision_transformer
from keras_vit.training.saved_models import recorded_class_names as recorded_names
from tests.models.test_vit import TINY

MODEL = types.SimpleNamespace(output_shape=(None, 1000))
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
    from keras_vit import save_checkpoint

    model = vision_transformer(**{**TINY, "num_classes": 1000})
    save_checkpoint(model, tmp_path / "mine.npz", "google")
    main(["convert", str(tmp_path / "mine.npz"), str(tmp_path / "mine.keras")])
    assert recorded_names(tmp_path / "mine.keras", 1000) is None
