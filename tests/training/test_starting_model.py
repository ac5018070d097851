"""The model that a run starts from: variants and paths, and settings that a model keeps."""

import dataclasses
import logging
import pathlib

import pytest

from keras_vit.models import vision_transformer
from keras_vit.training.starting_model import is_variant, make_model
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import small_recipe
from tests.fixtures.tiny import TINY

ASKED = {
    "dropout": 0.5,
    "pooling": "map",
    "position_embedding": "none",
    "pre_logits": True,
}


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "trained.keras"
    vision_transformer(**TINY).save(path)
    return path


def test_the_name_of_a_variant_is_the_variant(tmp_path, monkeypatch, caplog):
    """Also where a run has a directory of that name, which `./` stands for."""
    run = tmp_path / "ViT_Ti16"
    run.mkdir()
    (run / "run.json").write_text("{}")
    vision_transformer(**TINY).save(run / "best.keras")
    monkeypatch.chdir(tmp_path)
    recipe = small_recipe(image_size=16)
    built = make_model(recipe, "ViT_Ti16", num_classes=3)
    assert built.get_layer("patch_embedding").embedding_dim == 192
    assert "write ./ViT_Ti16 for the path" in caplog.text
    for path in ("./ViT_Ti16", pathlib.Path("ViT_Ti16")):
        assert not is_variant(path)
        loaded = make_model(recipe, path, num_classes=3)
        assert loaded.get_layer("patch_embedding").embedding_dim == TINY["embedding_dim"]


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("keras", "dropout 0.0, pre_logits False, pooling 'token', position_embedding 'learned'"),
        ("npz", "pre_logits False, pooling 'token', position_embedding 'learned'"),
        ("BiT_R50x1", "dropout 0.0, pre_logits False, pooling None, position_embedding None"),
    ],
)
def test_settings_that_a_model_keeps_are_logged(model, kept, trained, caplog):
    names = {"keras": trained, "npz": case_path("a_vit_token")}
    image_size = 32 if model == "BiT_R50x1" else 8
    recipe = small_recipe(**{**ASKED, "image_size": image_size})
    make_model(recipe, names.get(model, model), num_classes=3)
    lines = [line for line in caplog.messages if "keeps its own settings" in line]
    assert lines == [f"the model keeps its own settings, not the recipe's: {kept}"]


def test_a_dropout_that_was_not_asked_for_is_logged(tmp_path, caplog):
    vision_transformer(**TINY, dropout=0.1).save(tmp_path / "trained.keras")
    make_model(small_recipe(), tmp_path / "trained.keras", num_classes=3)
    assert "not the recipe's: dropout 0.1" in caplog.text


def test_a_model_that_does_what_the_recipe_wants_is_not_logged(trained, caplog):
    caplog.set_level(logging.INFO)
    make_model(small_recipe(), trained, num_classes=3)
    wanted = dataclasses.replace(small_recipe(image_size=16), **ASKED)
    make_model(wanted, "ViT_Ti16", num_classes=3)
    assert not caplog.text
