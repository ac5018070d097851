"""A `config.json` of another model or project next to weights is refused, never half used."""

import json

import keras
import pytest
import safetensors.numpy
from keras import ops

import keras_vit
from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from keras_vit.checkpoints.configuration import IMAGENET, OPENAI
from keras_vit.core.image_spec import WHOLE_IMAGE
from tests.fixtures.checkpoint_files import config_next_to
from tests.fixtures.reference import assert_logits, case_model, case_path
from tests.fixtures.tiny import images

BASE = {"architecture": "vit_base_patch16_224"}
CLIP = "vit_base_patch16_clip_quickgelu_224"
PE = "vit_pe_core_base_patch16_224"
TIMM_OTHERS = [
    ({"architecture": CLIP, "num_features": 768, "num_classes": 512}, "`num_features` .* 48. Rec"),
    ({"architecture": CLIP, "num_classes": 512}, "`num_classes` .* 10. Received: num_classes=512"),
    (
        {"architecture": "vit_so400m_patch16_siglip_256", "num_features": 1152, "num_classes": 0},
        "`num_features` .*num_features=1152",
    ),
    (
        {"model_type": "vit", "architectures": ["ViTModel"], "num_attention_heads": 4},
        "next to weights of timm must be their own, .*move it away",
    ),
    ({"learning_rate": 0.1}, "move it away .*'learning_rate'"),
]
HUGGINGFACE_OTHERS = [
    ({"num_labels": 9}, "`num_labels` .*, 10. Received: num_labels=9"),
    ({"num_attention_heads": "4"}, "`num_heads` must be an integer .*='4' .while reading '"),
    ({"image_size": 48}, "`image_size` .* position embedding.*image_size=48"),
]


def load_timm(folder, **config):
    """A model of timm with these settings next to its weights."""
    path = config_next_to("timm_token.safetensors", folder, {**BASE, **config})
    return from_checkpoint(path, num_heads=4)


@pytest.mark.parametrize(("config", "message"), TIMM_OTHERS)
def test_config_of_another_model_of_timm(config, message, tmp_path):
    path = config_next_to("timm_token.safetensors", tmp_path, config)
    with pytest.raises(ValueError, match=message) as error:
        from_checkpoint(path, num_heads=4)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(ValueError, match=message):
        load_checkpoint(case_model("timm_token"), path)


@pytest.mark.parametrize(("changes", "message"), HUGGINGFACE_OTHERS)
def test_config_of_another_model_of_transformers(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        from_checkpoint(config_next_to("hf_classifier", tmp_path, changes))


def test_config_of_timm_next_to_weights_of_transformers(tmp_path):
    config = {**BASE, "num_classes": 10, "num_features": 48}
    path = config_next_to("hf_classifier/model.safetensors", tmp_path, config)
    with pytest.raises(ValueError, match="next to weights of transformers must be their own"):
        from_checkpoint(path, num_heads=4)


def test_config_of_transformers_without_a_head_may_have_its_default_labels(tmp_path):
    path = config_next_to("hf_classifier", tmp_path, {"id2label": {"0": "A", "1": "B"}})
    arrays = safetensors.numpy.load_file(path / "model.safetensors")
    arrays = {name: a for name, a in arrays.items() if not name.startswith("classifier")}
    safetensors.numpy.save_file(arrays, path / "model.safetensors")
    assert from_checkpoint(path).output_shape == (None, 48)


def test_config_of_the_model_itself(tmp_path):
    assert load_timm(tmp_path, num_classes=10, num_features=48).output_shape == (None, 10)


def test_transformers_own_number_of_heads_where_none_is_configured(tmp_path, caplog):
    path = config_next_to("hf_classifier", tmp_path, {})
    config = json.loads((path / "config.json").read_text())
    del config["num_attention_heads"]
    (path / "config.json").write_text(json.dumps(config))
    assert from_checkpoint(path).get_layer("block_0").num_heads == 12
    assert "does not record num_attention_heads: 12 are assumed" in caplog.text
    caplog.clear()
    assert from_checkpoint(path, num_heads=4).get_layer("block_0").num_heads == 4
    assert "are assumed" not in caplog.text


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pretrained_cfg": "vit"}, "`pretrained_cfg` of .* must be a JSON object.*'vit'"),
        ({"model_args": [1]}, r"`model_args` of .* must be a JSON object.*\[1\]"),
        ({"pretrained_cfg": {"mean": "0.5", "std": 0.5}}, "must say how to normalize .*str"),
        ({"pretrained_cfg": {"mean": [0.5], "std": [None]}}, "must say how to normalize .*None"),
        # Functions that only the architecture records.
        ({"architecture": "test_vit3"}, "timm's default layers. .*='test_vit3'"),
        ({"architecture": PE}, f"timm's default layers. .*='{PE}'"),
    ],
    ids=str,
)
def test_settings_that_are_refused(config, message, tmp_path):
    with pytest.raises(ValueError, match=message) as error:
        load_timm(tmp_path, **config)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("config", "normalization"),
    [
        ({"mean": 0.5, "std": 0.5}, WHOLE_IMAGE.normalization),
        ({"mean": 0, "std": 1}, ((0,), (1,))),
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
        (0.5, {"size": 40}, ((0.5,) * 3, (0.5,) * 3), "images of 40x40 pixels, the model takes"),
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
    (path / "processor_config.json").write_text(json.dumps({"image_processor": [1]}))
    with pytest.raises(ValueError, match="`image_processor` of .* must be a JSON object"):
        from_checkpoint(path)


@pytest.mark.parametrize(
    ("settings", "normalization"),
    [
        ({"image_processor_type": "CLIPImageProcessorFast"}, OPENAI),
        ({"feature_extractor_type": "CLIPFeatureExtractor"}, OPENAI),
        ({"image_processor_type": "DINOv3ViTImageProcessorFast"}, IMAGENET),
        ({"image_processor_type": "SiglipImageProcessor"}, WHOLE_IMAGE.normalization),
        ({"image_processor_type": "BitImageProcessor", "image_std": [1]}, (OPENAI[0], (1,))),
        ({"image_mean": [0.25] * 3}, ((0.25,) * 3, (0.5,))),
        ({"size": 32}, WHOLE_IMAGE.normalization),
    ],
    ids=str,
)
def test_what_is_not_recorded_is_the_default_of_the_class(settings, normalization, tmp_path):
    path = config_next_to("hf_classifier", tmp_path, {})
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert from_checkpoint(path).image_spec.normalization == normalization


def test_timms_default_of_the_deviation(tmp_path):
    assert load_timm(tmp_path, pretrained_cfg={"mean": 0.5}).image_spec.normalization == (
        (0.5,),
        IMAGENET[1],
    )


@pytest.mark.parametrize("case", ["hf_classifier", "hf_dinov2_classifier"])
def test_a_normalization_that_is_not_recorded_is_told(case, tmp_path, caplog):
    path = config_next_to(case, tmp_path, {})
    (path / "preprocessor_config.json").unlink(missing_ok=True)
    model = from_checkpoint(path)
    load_checkpoint(model, path)
    assert caplog.text.count("no file records how images are prepared: mean and deviation") == 2


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
    larger = keras_vit.resize(model, 2 * size)
    assert larger.image_spec.cut_off == (0, 0)
    assert from_checkpoint(path, image_size=2 * size).image_spec.cut_off == (0, 0)
    assert keras_vit.replace_head(model, 2).image_spec == model.image_spec


def test_a_file_in_a_model_of_any_size_keeps_what_is_cut_off(tmp_path):
    sizes = json.loads((case_path("hf_classifier") / "config.json").read_text())
    cut = sizes["patch_size"] - 1
    whole = {"image_size": sizes["image_size"] + cut}
    path = config_next_to("hf_classifier", tmp_path, whole)
    model = keras_vit.resize(from_checkpoint(path), None)
    load_checkpoint(model, path)
    assert model.image_spec.cut_off == (cut, cut)


def test_a_grid_that_transformers_would_read_as_another(tmp_path):
    """DINOv2 computes a square grid from the number of positions."""
    path = config_next_to("hf_dinov2_classifier", tmp_path, {"image_size": [16, 64]})
    with pytest.raises(ValueError, match=r"`image_size` .* square for DINOv2.*=\[16, 64\]"):
        from_checkpoint(path)


def test_timm_knows_its_own_normalisation(tmp_path, caplog):
    """A directory of transformers may have become one of timm."""
    config = {**BASE, "pretrained_cfg": {"mean": 0.5, "std": 0.5}}
    path = config_next_to("timm_token.safetensors", tmp_path, config)
    settings = {"image_mean": [0.4] * 3, "image_std": [0.2] * 3}
    path.with_name("preprocessor_config.json").write_text(json.dumps(settings))
    assert from_checkpoint(path, num_heads=4).image_spec.normalization == WHOLE_IMAGE.normalization
    assert not caplog.messages


def test_another_grid_than_that_of_the_table_is_told(tmp_path, caplog):
    model = load_timm(tmp_path, model_args={"img_size": 64})
    assert model.input_shape == (None, 32, 32, 3)
    line = "the grid of its position embedding, (4, 4), is used; its settings have another, (8, 8)"
    assert line in caplog.text


def test_weights_of_another_width_are_named_as_such(tmp_path):
    config = {**BASE, "model_args": {"num_heads": 4}}
    path = config_next_to("timm_token.safetensors", tmp_path, config)
    with pytest.raises(ValueError, match="`num_heads` must be that of the file, 4"):
        keras_vit.ViT_Ti16(image_size=32, weights=str(path))


def test_weights_next_to_the_configuration_of_another_model(tmp_path):
    path = config_next_to("hf_classifier", tmp_path, {})
    with pytest.raises(ValueError, match="next to the config.json of another model"):
        keras_vit.save_checkpoint(case_model("timm_token"), path / "new.safetensors", "timm")
    assert not (path / "new.safetensors").exists()
