"""The model that a run starts from: variants and paths, and settings that a model keeps."""

import dataclasses
import pathlib

import numpy as np
import pytest

import keras_vit
from keras_vit.core.image_spec import ImageSpec
from keras_vit.core.text import imagenet_class_names, read_labels
from keras_vit.models import vision_transformer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.starting_model import make_model, pixels_of
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import classifier
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe, smoke
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.backends("tensorflow", reason="recipes set the same on every backend")

ASKED = {"dropout": 0.5, "pooling": "map", "position_embedding": "none", "pre_logits": True}
ABLATION = {"position_placement": "every_layer_shared", "axial": True, "pooling": "gap"}


@pytest.fixture
def trained(tmp_path):
    path = tmp_path / "trained.keras"
    vision_transformer(**TINY).save(path)
    return path


@pytest.mark.parametrize("source", ["trained", case_path("a_vit_token")], ids=["keras", "npz"])
@pytest.mark.parametrize("channels", [1, 13])
def test_trained_models_get_the_recipes_channels(source, channels, trained):
    recipe = small_recipe(image_size=16, image_channels=channels)
    made = make_model(recipe, trained if source == "trained" else source, num_classes=3)
    assert made.input_shape[-1] == made.image_spec.channels == channels


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
        loaded = make_model(recipe, path, num_classes=3)
        assert loaded.get_layer("patch_embedding").embedding_dim == TINY["embedding_dim"]


@pytest.mark.parametrize(
    ("model", "asked", "kept"),
    [
        ("trained", ASKED, "pooling 'token', position_embedding 'learned'"),
        (case_path("a_vit_token"), ASKED, "pooling 'token', position_embedding 'learned'"),
        ("trained", ABLATION, "position_placement 'stem', axial False"),
        pytest.param("BiT_R50x1", ABLATION, "axial None", marks=pytest.mark.slow),
        # What a variant is built with, and what a model has anyhow, is not kept against a wish.
        pytest.param("ViT_Ti16", ABLATION, None, marks=pytest.mark.slow),
        ("trained", {}, None),
    ],
)
def test_settings_that_a_model_keeps_are_logged(model, asked, kept, trained, caplog):
    recipe = small_recipe(**{"image_size": 32, **asked})
    make_model(recipe, trained if model == "trained" else model, num_classes=3)
    assert ("the model keeps its own settings" in caplog.text) == bool(kept)
    assert (kept or "") in caplog.text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"channels": 13, "value_range": (0, 5)}),
        ({"value_range": "dtype"}, {"channels": 13, "value_range": "dtype"}),
        ({"value_range": "deviations"}, {"channels": 13, "value_range": "dtype"}),
        ({"image_channels": 4}, {"channels": 4, "value_range": (0, 5)}),
    ],
)
def test_a_recipe_replaces_the_pixels_of_a_model(tmp_path, settings, expected):
    model = vision_transformer(**TINY, image_channels=13)
    model.image_spec = ImageSpec("bicubic", channels=13, value_range=(0, 5))
    model.save(tmp_path / "bands.keras")
    for given in (model, tmp_path / "bands.keras"):
        assert pixels_of(small_recipe(**settings), given) == ImageSpec(**expected)


def test_a_checkpoint_keeps_its_channels(tmp_path):
    model = vision_transformer(**TINY, image_channels=4)
    keras_vit.save_checkpoint(model, tmp_path / "timm", format="timm")
    assert pixels_of(small_recipe(image_size=16), tmp_path / "timm").channels == 4


def test_a_variant_gets_the_channels_of_the_recipe():
    recipe = small_recipe(image_size=32, image_channels=4)
    assert make_model(recipe, "ViT_Ti16(depth=1)", num_classes=3).input_shape[-1] == 4


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
    for names in (("7", "9", "8"), ("7", "8")):
        with pytest.raises(ValueError, match="'9' instead of"):
            make_model(recipe, tmp_path / "trained.keras", len(names), kept_classes=names)


@pytest.mark.slow
def test_names_of_imagenet_may_be_words_or_synsets(tmp_path):
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
        ("ViT_Ti16", {}, "needs a trained model"),
        ("ViT_Ti61", {}, "must be an existing file"),
        (case_path("a_vit_token"), {"loss": "pixels"}, "a loss for classes or values"),
        (case_path("a_vit_token"), {}, "with None instead of '0'"),
    ],
)
def test_a_head_that_cannot_be_kept_is_refused(model, changes, message):
    with pytest.raises(ValueError, match=message):
        make_model(small_recipe(**changes), model, 10, kept_classes=list("0123456789"))


@pytest.mark.slow
def test_a_run_resizes_images_as_the_paper_does(tmp_path):
    model = small_model(small_recipe())
    model.image_spec = ImageSpec("bicubic", antialias=True)
    model.save(tmp_path / "m.keras")
    made = make_model(small_recipe(), str(tmp_path / "m.keras"), num_classes=3)
    assert made.image_spec == ImageSpec()


@pytest.mark.parametrize("recipe", [RECIPES["pretrain"], RECIPES["finetune"]])
def test_a_variant_is_built_as_the_recipe_wants_it(recipe):
    recipe = dataclasses.replace(smoke(recipe), remat=True, axial=True, pooling="gap")
    model = make_model(recipe, "ViT_Ti16(depth=2)", num_classes=3, dtype="mixed_bfloat16")
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    assert ("pre_logits" in [layer.name for layer in model.layers]) == recipe.pre_logits
    assert (model.options.axial, model.options.pooling) == (True, "gap")
    # All halves of the blocks are rematerialised.
    half = model.get_layer("block_1").columns
    assert (half.dropout, half.compute_dtype, half.remat) == (recipe.dropout, "bfloat16", True)


@pytest.mark.parametrize(
    "model", [pytest.param("ViT_Ti16", marks=pytest.mark.slow), case_path("a_vit_token")]
)
def test_a_new_head_gets_the_recipes_bias(model):
    recipe = smoke(RECIPES["augreg_imagenet21k"])
    bias = make_model(recipe, model, num_classes=3).get_layer("head").bias
    np.testing.assert_array_equal(to_numpy(bias.value), [-10] * 3)


def test_both_classifiers_of_a_distilled_model_get_the_recipes_bias(tmp_path):
    vision_transformer(**TINY, distillation_token=True).save(tmp_path / "deit.keras")
    recipe = dataclasses.replace(smoke(RECIPES["augreg_imagenet21k"]), image_size=16)
    head = make_model(recipe, tmp_path / "deit.keras", num_classes=3).get_layer("head")
    for part in (head.class_token, head.distillation_token):
        np.testing.assert_array_equal(to_numpy(part.bias.value), [-10] * 3)


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
