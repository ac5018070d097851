"""A `config.json` of another model or project next to weights is refused, never half used."""

import json

import keras
import pytest
import safetensors.numpy
from keras import ops

import keras_vit
from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from keras_vit.core.image_spec import WHOLE_IMAGE
from tests.fixtures.checkpoint_files import config_next_to
from tests.fixtures.reference import assert_logits, case_path
from tests.fixtures.tiny import images

BASE = {"architecture": "vit_base_patch16_224"}
PE = "vit_pe_core_base_patch16_224"


# A case, settings of its `config.json`, and the error.
OTHERS = [
    ("timm_token.safetensors", {**BASE, "num_features": 768}, "`num_features` .* 48"),
    ("timm_token.safetensors", {**BASE, "num_classes": 512}, "`num_classes` .* 10"),
    (
        "timm_token.safetensors",
        {"model_type": "vit"},
        "next to weights of timm must be a file of timm",
    ),
    ("timm_token.safetensors", {"learning_rate": 0.1}, "move the file away .*'learning_rate'"),
    ("timm_token.safetensors", {**BASE, "model_args": [1]}, "`model_args` of .* JSON object"),
    (
        "timm_token.safetensors",
        {**BASE, "pretrained_cfg": {"mean": [0.5], "std": [None]}},
        "must record how to normalize",
    ),
    # Functions that only the architecture records.
    ("timm_token.safetensors", {"architecture": "test_vit3"}, "timm's default layers"),
    ("timm_token.safetensors", {"architecture": PE}, "timm's default layers"),
    ("hf_classifier", {"num_labels": 9}, "`num_labels` .*, 10"),
    ("hf_classifier", {"image_size": 48}, "`image_size` .* position embedding"),
    ("hf_classifier", {"num_attention_heads": "4"}, "`num_heads` must be an integer"),
    (
        "hf_classifier",
        {"num_attention_heads": 5},
        "`num_heads` must be (a positive divisor|that of)",
    ),
    ("hf_classifier", {"hidden_size": 1024}, "`hidden_size` of the model's configuration"),
    ("hf_classifier", {"layer_norm_eps": -1}, "`layer_norm_eps` .* between 0 and 1"),
    ("hf_classifier", {"model_type": "dinov2"}, "`model_type` of the model's configuration"),
    ("hf_classifier", {"hidden_act": "mish"}, "`hidden_act` of the model's configuration"),
    # DINOv2 computes a square grid from the number of positions.
    ("hf_dinov2_classifier", {"image_size": [16, 64]}, "`image_size` .* square for DINOv2"),
    ("hf_classifier/model.safetensors", BASE, "must be a file of transformers"),
]


def load_timm(folder, **config):
    """A model of timm with these settings next to its weights."""
    path = config_next_to("timm_token.safetensors", folder, {**BASE, **config})
    return from_checkpoint(path, num_heads=4)


@pytest.mark.parametrize(("case", "config", "message"), OTHERS, ids=str)
def test_configuration_of_another_model_is_refused(case, config, message, tmp_path):
    path = config_next_to(case, tmp_path, config)
    options = {"num_heads": 4} if case.endswith(".safetensors") else {}
    with pytest.raises(ValueError, match=message):
        from_checkpoint(path, **options)


def test_config_of_transformers_without_a_head_may_have_its_default_labels(tmp_path):
    path = config_next_to("hf_classifier", tmp_path, {"id2label": {"0": "A", "1": "B"}})
    arrays = safetensors.numpy.load_file(path / "model.safetensors")
    arrays = {name: a for name, a in arrays.items() if not name.startswith("classifier")}
    safetensors.numpy.save_file(arrays, path / "model.safetensors")
    assert from_checkpoint(path).output_shape == (None, 48)


def test_transformers_own_number_of_heads_where_none_is_configured(tmp_path, caplog):
    path = config_next_to("hf_classifier", tmp_path, {})
    config = json.loads((path / "config.json").read_text())
    del config["num_attention_heads"]
    (path / "config.json").write_text(json.dumps(config))
    assert from_checkpoint(path).get_layer("block_0").num_heads == 12
    assert "does not record num_attention_heads: 12 are assumed" in caplog.text


@pytest.mark.parametrize(
    ("config", "normalization"),
    [
        ({"mean": 0.5, "std": 0.5}, WHOLE_IMAGE.normalization),
        ({"mean": [0, 0, 0], "std": [1, 1, 1]}, ((0, 0, 0), (1, 1, 1))),
    ],
    ids=str,
)
def test_one_number_for_all_channels(config, normalization, tmp_path, caplog):
    """The patch projection absorbs the normalization: the model computes the same of pixels."""
    model = load_timm(tmp_path, pretrained_cfg=config)
    assert model.image_spec.normalization == normalization
    assert not caplog.messages
    without = load_timm(tmp_path)
    pixels = images(2, *model.input_shape[1:])
    mean, deviation = (values[0] for values in normalization)
    outputs, expected = model(2 * pixels - 1), without((pixels - mean) / deviation)
    assert_logits(ops.convert_to_numpy(outputs), ops.convert_to_numpy(expected))


@pytest.mark.parametrize(
    ("value", "settings", "normalization", "warning"),
    [
        (1.0, {"rescale_factor": 1 / 127.5}, ((0.5,) * 3, (0.5,) * 3), ""),
        (0.5, {"rescale_factor": 1 / 127.5}, ((0.25,) * 3, (0.25,) * 3), ""),
        (0.5, {"rescale_factor": None}, ((0.5,) * 3, (0.5,) * 3), ""),
        (0.5, {"do_rescale": False}, ((0.5,) * 3, (0.5,) * 3), "assumed to be in [0, 1] before"),
        (0.5, {"do_normalize": False}, ((0,), (1,)), ""),
        (0.5, {"do_resize": False}, ((0.5,) * 3, (0.5,) * 3), "are resized bilinearly"),
        (
            0.5,
            {"size": 40},
            ((0.5,) * 3, (0.5,) * 3),
            "images of 40x40 pixels, but the model takes",
        ),
    ],
)
def test_what_a_processor_does(value, settings, normalization, warning, tmp_path, caplog):
    path = config_next_to("hf_classifier", tmp_path, {})
    settings = {"image_mean": [value] * 3, "image_std": [value] * 3, **settings}
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert from_checkpoint(path).image_spec.normalization == normalization
    assert warning in caplog.text and bool(caplog.messages) == bool(warning)


def test_processors_of_images_and_texts(tmp_path, caplog):
    """transformers 5 saves the settings of an image processor with those of a tokenizer."""
    path = config_next_to("hf_classifier", tmp_path, {})
    images = {"image_mean": [0.25] * 3, "image_std": [0.125] * 3}
    (path / "processor_config.json").write_text(json.dumps({"image_processor": images}))
    assert from_checkpoint(path).image_spec.normalization == ((0.25,) * 3, (0.125,) * 3)
    (path / "processor_config.json").write_text(json.dumps({"processor_class": "CLIPProcessor"}))
    assert from_checkpoint(path).image_spec.normalization == WHOLE_IMAGE.normalization


@pytest.mark.parametrize("case", ["hf_classifier", "hf_dinov2_classifier"])
def test_a_normalization_that_is_not_recorded_is_told(case, tmp_path, caplog):
    path = config_next_to(case, tmp_path, {})
    (path / "preprocessor_config.json").unlink(missing_ok=True)
    from_checkpoint(path)
    assert "no file records how images are prepared: mean and deviation" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("case", ["hf_classifier", "hf_dinov2_classifier"])
def test_images_that_patches_do_not_tile(case, tmp_path):
    """They are resized as recorded, and cut; the files that are written record the same."""
    sizes = json.loads((case_path(case) / "config.json").read_text())
    size, cut = sizes["image_size"], sizes["patch_size"] - 1
    path = config_next_to(case, tmp_path / "theirs", {"image_size": size + cut})
    model = from_checkpoint(path)
    assert model.input_shape == (None, size, size, 3)
    assert model.image_spec.cut_off == (cut, cut)
    keras_vit.save_checkpoint(model, tmp_path / "ours", "huggingface")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["image_size"] == size + cut
    again = from_checkpoint(tmp_path / "ours")
    assert (again.input_shape, again.image_spec.cut_off) == (model.input_shape, (cut, cut))
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").image_spec == model.image_spec
    assert keras_vit.resize(model, 2 * size).image_spec.cut_off == (0, 0)
    assert from_checkpoint(path, image_size=2 * size).image_spec.cut_off == (0, 0)
    free = keras_vit.resize(model, None)
    load_checkpoint(free, path)
    assert free.image_spec.cut_off == (cut, cut)


def test_timm_knows_its_own_normalisation(tmp_path, caplog):
    """A directory of transformers may have become one of timm."""
    config = {**BASE, "pretrained_cfg": {"mean": 0.5, "std": 0.5}}
    path = config_next_to("timm_token.safetensors", tmp_path, config)
    settings = {"image_mean": [0.4] * 3, "image_std": [0.2] * 3}
    path.with_name("preprocessor_config.json").write_text(json.dumps(settings))
    assert from_checkpoint(path, num_heads=4).image_spec.normalization == WHOLE_IMAGE.normalization
    assert not caplog.messages
