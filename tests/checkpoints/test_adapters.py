"""Files of adapters: complete, exact, and strict."""

import numpy as np
import pytest
import safetensors.numpy

import keras_vit
from keras_vit.checkpoints.archives import SafetensorsArchive
from keras_vit.models.surgery import lora_layers
from tests.fixtures.contract import to_numpy
from tests.fixtures.kernels import logits_of, small, tuned


def fresh(rank=2, alpha=3, layers=None, **options):
    model = small(**options)
    return keras_vit.enable_lora(model, rank, alpha, layers)


@pytest.mark.parametrize("options", [{}, {"distillation_token": True}])
def test_written_and_read(options, tmp_path):
    model, other = tuned(**options), fresh(**options)
    keras_vit.save_adapter(model, tmp_path / "adapter.safetensors")
    keras_vit.load_adapter(other, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(logits_of(other), logits_of(model))


@pytest.mark.backends("tensorflow", reason="files are the same on every backend")
def test_size_of_the_file(tmp_path):
    """At rank 8, less than 2 % of the bytes of ViT-B/16 without its head."""
    options = {"patch_size": 16, "embedding_dim": 768, "num_heads": 12, "mlp_dim": 3072}
    model = keras_vit.vision_transformer(**options, depth=1, image_size=16, num_classes=0)
    model = keras_vit.enable_lora(model, 8)
    keras_vit.save_adapter(model, tmp_path / "block.safetensors")
    assert 12 * (tmp_path / "block.safetensors").stat().st_size < 0.02 * 4 * 86_567_656


@pytest.mark.parametrize("mode", [pytest.param("int8", marks=pytest.mark.slow), "int4"])
def test_a_quantized_base_is_the_same(mode, tmp_path):
    keras_vit.save_adapter(tuned(), tmp_path / "adapter.safetensors")
    model = keras_vit.quantize(small(), mode)
    model = keras_vit.enable_lora(model, 2, 3)
    keras_vit.load_adapter(model, tmp_path / "adapter.safetensors")


def with_another_base(**options):
    model = fresh(**options)
    for part in lora_layers(model):
        part.kernel.assign(np.random.default_rng(1).normal(size=part.kernel.shape))
    return model


def test_another_base_is_refused_for_a_directory(tmp_path):
    """A file next to those of peft records the base; peft's own have none."""
    options = {"activation": "gelu", "epsilon": 1e-12}
    model, other = tuned(**options), with_another_base(**options)
    keras_vit.save_adapter(model, tmp_path)
    keras_vit.load_adapter(model, tmp_path)
    with pytest.raises(ValueError, match="must hold an adapter of the model's weights"):
        keras_vit.load_adapter(other, tmp_path)
    record = tmp_path / "keras_vit_adapter.json"
    for wrong, message in (
        ('{"lora_scale": 1.5}', "must hold an adapter of the model's weights"),
        ("not JSON", "keras_vit_adapter.json' must hold JSON"),
    ):
        record.write_text(wrong)
        with pytest.raises(ValueError, match=message):
            keras_vit.load_adapter(model, tmp_path)
    record.unlink()
    keras_vit.load_adapter(other, tmp_path)


def test_another_base_is_refused(tmp_path):
    path = tmp_path / "adapter.safetensors"
    keras_vit.save_adapter(tuned(), path)
    other = with_another_base()
    before = logits_of(other)
    with pytest.raises(ValueError, match="must hold an adapter of the model's weights"):
        keras_vit.load_adapter(other, path)
    np.testing.assert_array_equal(logits_of(other), before)


def test_a_file_without_its_metadata_is_refused(tmp_path):
    path = tmp_path / "adapter.safetensors"
    keras_vit.save_adapter(tuned(), path)
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path)
    with pytest.raises(ValueError, match="alpha / rank is nan, not 1.5"):
        keras_vit.load_adapter(fresh(), path)


@pytest.mark.parametrize("name", ["adapter.safetensors", "peft"])
def test_the_names_of_the_classes_come_with_the_head(name, tmp_path):
    options = {"activation": "gelu", "epsilon": 1e-12}
    model, base = tuned(**options), fresh(**options)
    model.class_names, model.thresholds = ("bus", "car", "van"), (0.2, 0.3, 0.4)
    base.class_names = ("apple", "pear", "plum")
    keras_vit.save_adapter(model, tmp_path / name)
    keras_vit.load_adapter(base, tmp_path / name)
    np.testing.assert_array_equal(logits_of(base), logits_of(model))
    assert base.class_names == ("bus", "car", "van") and base.thresholds == (0.2, 0.3, 0.4)


def test_a_head_of_unnamed_classes_has_no_names(tmp_path):
    base = fresh()
    base.class_names = ("apple", "pear", "plum")
    keras_vit.save_adapter(tuned(), tmp_path / "adapter.safetensors")
    keras_vit.load_adapter(base, tmp_path / "adapter.safetensors")
    assert base.class_names is None


def test_a_head_of_unknown_classes_has_no_names(tmp_path):
    """As that of peft's own files."""
    base = tuned(activation="gelu", epsilon=1e-12)
    keras_vit.save_adapter(base, tmp_path)
    (tmp_path / "keras_vit_adapter.json").unlink()
    base.class_names = ("apple", "pear", "plum")
    keras_vit.load_adapter(base, tmp_path)
    assert base.class_names is None


def test_an_adapter_is_no_model(tmp_path):
    keras_vit.save_adapter(tuned(activation="gelu", epsilon=1e-12), tmp_path)
    with pytest.raises(ValueError, match="must be a directory with model.safetensors"):
        keras_vit.from_checkpoint(tmp_path)


WRONG = {
    "another rank": ({"rank": 3, "alpha": 4.5}, "misshapen: 'block_0/attention/query/lora_kernel"),
    "another depth": ({"depth": 1}, "unused: .*block_1"),
    "more depth": ({"depth": 3}, "missing: 'block_2"),
    "other layers": ({"layers": ("query",)}, "unused: 'block_0/attention/key/lora_kernel_a'"),
    "another alpha": ({"alpha": 4}, "alpha / rank is 1.5, not 2"),
    "another head": ({"num_classes": 4}, "misshapen: 'head/kernel' is .8, 3., not .8, 4."),
}


@pytest.mark.backends("tensorflow", reason="files are the same on every backend")
@pytest.mark.parametrize("name", WRONG)
def test_adapters_of_other_models(name, tmp_path):
    options, message = WRONG[name]
    keras_vit.save_adapter(tuned(), tmp_path / "adapter.safetensors")
    model = fresh(**options)
    before = logits_of(model)
    with pytest.raises(ValueError, match=message):
        keras_vit.load_adapter(model, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(logits_of(model), before)


@pytest.mark.backends("tensorflow", reason="files are the same on every backend")
def test_wrong_paths_and_values(tmp_path):
    model, path = tuned(), tmp_path / "adapter.safetensors"
    for function in (keras_vit.save_adapter, keras_vit.load_adapter):
        with pytest.raises(ValueError, match="`model` must have LoRA"):
            function(small(), path)
    for missing in (path, tmp_path):
        with pytest.raises(ValueError, match="`path` must be a complete file of arrays. Received"):
            keras_vit.load_adapter(model, missing)
    keras_vit.save_adapter(model, path)
    good = path.read_bytes()
    head = model.get_layer("head").bias
    head.assign(np.full(3, np.nan, "float32"))
    with pytest.raises(ValueError, match="head/bias has 3 NaN"):
        keras_vit.save_adapter(model, path)
    assert path.read_bytes() == good
    path.write_bytes(good[:-9])
    with pytest.raises(ValueError, match="must be a complete file of arrays"):
        keras_vit.load_adapter(model, path)
    assert np.isnan(to_numpy(head)).all()


@pytest.mark.backends("tensorflow", reason="files are the same on every backend")
def test_peft_needs_a_vit(tmp_path):
    with pytest.raises(ValueError, match="that is not transformers' ViT. Received"):
        keras_vit.save_adapter(tuned(pooling="gap"), tmp_path / "peft")
    keras_vit.save_adapter(tuned(), tmp_path / "peft")
    archive = SafetensorsArchive(tmp_path / "peft" / "adapter_model.safetensors")
    assert archive.shapes["base_model.model.vit.layers.1.mlp.fc1.lora_B.weight"] == (16, 2)
    archive.close()


@pytest.mark.backends("tensorflow", reason="files are the same on every backend")
def test_adapters_log_no_warnings_about_images(tmp_path, caplog):
    keras_vit.save_adapter(tuned(), tmp_path / "peft")
    keras_vit.load_adapter(tuned(), tmp_path / "peft")
    assert not caplog.messages
