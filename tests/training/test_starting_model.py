"""The model that a run starts from: variants and paths, and settings that a model keeps."""

import dataclasses
import logging
import pathlib

import numpy as np
import pytest

import keras_vit
from keras_vit.core.image_spec import ImageSpec
from keras_vit.core.text import imagenet_class_names, read_labels
from keras_vit.models import vision_transformer
from keras_vit.models.variants import is_variant
from keras_vit.training.recipe import RECIPES
from keras_vit.training.starting_model import make_model
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import classifier
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe, smoke
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.backends("tensorflow", reason="recipes set the same on every backend")

ASKED = {"dropout": 0.5, "pooling": "map", "position_embedding": "none", "pre_logits": True}


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "trained.keras"
    vision_transformer(**TINY).save(path)
    return path


@pytest.mark.slow
def test_the_name_of_a_variant_is_the_variant(tmp_path, monkeypatch):
    """Also where a run has a directory of that name, which `./` stands for."""
    run = tmp_path / "ViT_Ti16"
    run.mkdir()
    (run / "run.json").write_text("{}")
    vision_transformer(**TINY).save(run / "best.keras")
    monkeypatch.chdir(tmp_path)
    recipe = small_recipe(image_size=16)
    built = make_model(recipe, "ViT_Ti16", num_classes=3)
    assert built.get_layer("patch_embedding").embedding_dim == 192
    for path in ("./ViT_Ti16", pathlib.Path("ViT_Ti16")):
        assert not is_variant(path)
        loaded = make_model(recipe, path, num_classes=3)
        assert loaded.get_layer("patch_embedding").embedding_dim == TINY["embedding_dim"]


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("keras", "dropout 0.0, pre_logits False, pooling 'token', position_embedding 'learned'"),
        ("npz", "pre_logits False, pooling 'token', position_embedding 'learned'"),
        pytest.param(
            "BiT_R50x1",
            "dropout 0.0, pre_logits False, pooling None, position_embedding None",
            marks=pytest.mark.slow,
        ),
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


@pytest.mark.slow
def test_a_head_of_the_same_classes_can_be_kept(tmp_path):
    model, recipe = vision_transformer(**TINY), small_recipe(image_size=16)
    head = model.get_layer("head").kernel
    head.assign(np.random.default_rng(0).normal(size=head.shape))
    model.class_names = ["7", "8", "9"]
    model.save(tmp_path / "trained.keras")
    keras_vit.save_checkpoint(model, tmp_path / "timm", format="timm")
    inputs = images(1, 16, 16, 3)
    expected = to_numpy(model(inputs))
    for path in (tmp_path / "trained.keras", tmp_path / "timm"):
        kept = make_model(recipe, path, num_classes=3, kept_classes=("7", "8", "9"))
        np.testing.assert_allclose(to_numpy(kept(inputs)), expected, rtol=1e-5)
        assert not to_numpy(make_model(recipe, path, num_classes=3)(inputs)).any()
    for names, message in (
        (("7", "9", "8"), "with '8' instead of '9', '9' instead of '8'"),
        (("7", "8"), "with '9' instead of None"),
    ):
        with pytest.raises(ValueError, match=message):
            make_model(recipe, tmp_path / "trained.keras", len(names), kept_classes=names)


@pytest.mark.slow
def test_words_of_imagenet_are_its_synsets(tmp_path):
    model = vision_transformer(**{**TINY, "num_classes": 1000})
    model.class_names = imagenet_class_names(1000)
    model.save(tmp_path / "trained.keras")
    synsets = [synset for synset, _ in read_labels(1000)]
    arguments = (small_recipe(image_size=16), tmp_path / "trained.keras", 1000)
    assert make_model(*arguments, kept_classes=synsets).output_shape == (None, 1000)
    with pytest.raises(ValueError, match="'tench' instead of"):
        make_model(*arguments, kept_classes=synsets[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "int8", "head bias"])
def test_a_kept_head_computes_as_before(kind, tmp_path):
    model = classifier(image_size=16)
    model.class_names = CLASSES
    if kind == "lora":
        model = keras_vit.enable_lora(model, rank=2)
        randomise(model)
    model = keras_vit.quantize(model, "int8") if kind == "int8" else model
    model.save(tmp_path / "trained.keras")
    bias = {"loss": "sigmoid", "head_bias": -10.0} if kind == "head bias" else {}
    recipe = small_recipe(image_size=16, **bias)
    kept = make_model(recipe, tmp_path / "trained.keras", 3, kept_classes=CLASSES)
    inputs = images(2, 16, 16, 3)
    # Trained as floats.
    tolerance = 0.05 if kind == "int8" else 1e-5
    np.testing.assert_allclose(to_numpy(kept(inputs)), to_numpy(model(inputs)), atol=tolerance)
    assert len(kept.trainable_variables) == len(kept.variables)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("ViT_Ti16", {}, "is for a trained model .*model='ViT_Ti16'"),
        (case_path("a_vit_token"), {"loss": "pixels"}, "is to classify images.*loss='pixels'"),
        (case_path("a_vit_token"), {}, "with None instead of '0'"),
        ("ViT_Ti61", {}, "must be an existing file .*'ViT_Ti61'"),
    ],
)
def test_a_head_that_cannot_be_kept(model, changes, message):
    with pytest.raises(ValueError, match=message):
        make_model(small_recipe(**changes), model, 10, kept_classes=list("0123456789"))


@pytest.mark.slow
def test_ablations_are_of_new_models(trained, tmp_path, caplog):
    asked = {"position_placement": "every_layer_shared", "axial": True, "pooling": "gap"}
    built = make_model(small_recipe(image_size=16, **asked), "ViT_Ti16", num_classes=3)
    assert {name: getattr(built.options, name) for name in asked} == asked
    assert not caplog.text
    make_model(small_recipe(image_size=8, **asked), trained, num_classes=3)
    make_model(small_recipe(image_size=32, **asked), "BiT_R50x1", num_classes=3)
    kept = ("position_placement 'stem', axial False", "position_placement None, axial None")
    for line, text in zip(caplog.messages, kept, strict=True):
        assert "the model keeps its own settings" in line and text in line
    # All halves of the blocks are rematerialised.
    remat = make_model(small_recipe(image_size=16, remat=True, **asked), "ViT_Ti16", num_classes=3)
    assert remat.get_layer("block_3").columns.remat


@pytest.mark.slow
def test_a_model_that_does_what_the_recipe_wants_is_not_logged(trained, caplog):
    caplog.set_level(logging.INFO)
    make_model(small_recipe(), trained, num_classes=3)
    wanted = dataclasses.replace(small_recipe(image_size=16), **ASKED)
    make_model(wanted, "ViT_Ti16", num_classes=3)
    assert not caplog.text


@pytest.mark.slow
def test_a_run_resizes_images_as_the_paper_does(tmp_path):
    model = small_model(small_recipe())
    model.image_spec = ImageSpec("bicubic", antialias=True)
    model.save(tmp_path / "m.keras")
    made = make_model(small_recipe(), str(tmp_path / "m.keras"), num_classes=3)
    assert made.image_spec == ImageSpec()


@pytest.mark.parametrize("recipe", [RECIPES["pretrain"], RECIPES["finetune"]])
def test_a_variant_is_built_as_the_recipe_wants_it(recipe):
    recipe = dataclasses.replace(smoke(recipe), remat=True)
    model = make_model(recipe, "ViT_Ti16", num_classes=3, dtype="mixed_bfloat16")
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    names = [layer.name for layer in model.layers]
    assert ("pre_logits" in names) == recipe.pre_logits
    assert model.get_layer("block_0").dropout == recipe.dropout
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("block_0").remat


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [RECIPES["pretrain"], RECIPES["finetune"]])
@pytest.mark.parametrize("source", ["BiT_R50x1", case_path("k1_bit_resnetv2")])
def test_a_resnet_has_neither_dropout_nor_a_hidden_layer(source, recipe):
    model = make_model(smoke(recipe), source, num_classes=3, dtype="mixed_bfloat16")
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    assert "pre_logits" not in [layer.name for layer in model.layers]
    assert model.get_layer("stage_1_unit_1").compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    "model", [pytest.param("ViT_Ti16", marks=pytest.mark.slow), case_path("a_vit_token")]
)
def test_a_new_head_gets_the_recipes_bias(model):
    recipe = smoke(RECIPES["augreg_imagenet21k"])
    bias = make_model(recipe, model, num_classes=3).get_layer("head").bias
    np.testing.assert_array_equal(to_numpy(bias.value), [-10] * 3)


def test_both_classifiers_of_a_distilled_model_get_the_recipes_bias(tmp_path):
    vision_transformer(**TINY, distillation_token=True).save(tmp_path / "deit.keras")
    recipe = smoke(RECIPES["augreg_imagenet21k"])
    head = make_model(recipe, tmp_path / "deit.keras", num_classes=3).get_layer("head")
    for part in (head.class_token, head.distillation_token):
        np.testing.assert_array_equal(to_numpy(part.bias.value), [-10] * 3)


@pytest.mark.slow
def test_a_trained_model_gets_the_recipes_head_and_size(tmp_path):
    trained = vision_transformer(**TINY, representation_size=6)
    trained.save(tmp_path / "trained.keras")
    model = make_model(small_recipe(), tmp_path / "trained.keras", num_classes=5)
    assert (model.input_shape, model.output_shape) == ((None, 8, 8, 3), (None, 5))
    for path in ("block_0/mlp/dense_0/kernel", "encoder_norm/gamma"):
        old, new = (next(v for v in m.weights if v.path == path) for m in (trained, model))
        np.testing.assert_array_equal(to_numpy(old.value), to_numpy(new.value))


@pytest.mark.parametrize("model", ["missing.keras", "runs/missing", "ViT_X16"])
def test_no_such_model(model):
    with pytest.raises(ValueError, match="`(model|variant|path)` must"):
        make_model(RECIPES["digits_finetune"], model, num_classes=3)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_the_recipe_alone_decides_what_is_trained(whole, tmp_path):
    """Whatever the model that a run starts from has frozen."""
    tiny = vision_transformer(**TINY)
    keras_vit.freeze_blocks(tiny, 1)
    tiny.get_layer("block_1").mlp.dense_0.kernel.trainable = False
    tiny.trainable = tiny.trainable and not whole
    path = tmp_path / "frozen.keras"
    tiny.save(path)
    model = make_model(small_recipe(), path, num_classes=3)
    assert len(model.trainable_weights) == len(model.weights)
    model = make_model(small_recipe(frozen_blocks=1), path, num_classes=3)
    trained = {weight.path for weight in model.trainable_weights}
    assert trained == {
        weight.path
        for weight in model.weights
        if weight.path.startswith(("block_1", "encoder_norm", "head"))
    }
