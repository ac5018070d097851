"""Files of adapters: complete, exact, and strict."""

import numpy as np
import pytest
import safetensors.numpy

import keras_vit
from keras_vit.models.surgery import lora_layers
from tests.fixtures.kernels import logits_of, small, tuned

# Models that peft's directories can describe.
PEFT = {"activation": "gelu", "epsilon": 1e-12}
PATHS = pytest.mark.parametrize("name", ["adapter.safetensors", "peft"])


def fresh(rank=2, alpha=3, layers=None, **options):
    model = small(**options)
    return keras_vit.enable_lora(model, rank, alpha, layers)


@pytest.mark.parametrize("options", [{}, {"distillation_token": True}])
def test_written_and_read(options, tmp_path):
    model, other = tuned(**options), fresh(**options)
    keras_vit.save_adapter(model, tmp_path / "adapter.safetensors")
    keras_vit.load_adapter(other, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(logits_of(other), logits_of(model))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
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


@PATHS
def test_another_base_is_refused(name, tmp_path):
    keras_vit.save_adapter(tuned(**PEFT), tmp_path / name)
    other = with_another_base(**PEFT)
    before = logits_of(other)
    with pytest.raises(ValueError, match="trained with the weights of the base model"):
        keras_vit.load_adapter(other, tmp_path / name)
    np.testing.assert_array_equal(logits_of(other), before)


@pytest.mark.parametrize("is_of_peft", [False, True])
def test_a_head_of_unnamed_classes_has_no_names(is_of_peft, tmp_path):
    model, base = tuned(**PEFT), fresh(**PEFT)
    base.class_names = ("apple", "pear", "plum")
    keras_vit.save_adapter(model, tmp_path)
    if is_of_peft:
        # Peft's own directories record neither the classes nor the base.
        (tmp_path / "keras_vit_adapter.json").unlink()
    keras_vit.load_adapter(base, tmp_path)
    assert base.class_names is None
    np.testing.assert_array_equal(logits_of(base), logits_of(model))


def test_a_file_without_its_metadata_is_refused(tmp_path):
    path = tmp_path / "adapter.safetensors"
    keras_vit.save_adapter(tuned(), path)
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path)
    with pytest.raises(ValueError, match="alpha / rank is nan, not 1.5"):
        keras_vit.load_adapter(fresh(), path)


@PATHS
def test_the_names_of_the_classes_come_with_the_head(name, tmp_path):
    model, base = tuned(**PEFT), fresh(**PEFT)
    model.class_names, model.thresholds = ("bus", "car", "van"), (0.2, 0.3, 0.4)
    model.predicts_values = True
    base.class_names = ("apple", "pear", "plum")
    keras_vit.save_adapter(model, tmp_path / name)
    keras_vit.load_adapter(base, tmp_path / name)
    np.testing.assert_array_equal(logits_of(base), logits_of(model))
    assert base.class_names == ("bus", "car", "van") and base.thresholds == (0.2, 0.3, 0.4)
    assert base.predicts_values


@PATHS
def test_an_adapter_without_a_head_keeps_the_head_of_the_model(name, tmp_path):
    model, base = fresh(**PEFT, num_classes=0), fresh(**PEFT)
    for part, other in zip(lora_layers(model), lora_layers(base), strict=True):
        part.kernel.assign(other.kernel)
        part.lora_kernel_b.assign(np.ones(part.lora_kernel_b.shape))
    base.class_names = ("apple", "pear", "plum")
    head = base.get_layer("head").get_weights()
    keras_vit.save_adapter(model, tmp_path / name)
    keras_vit.load_adapter(base, tmp_path / name)
    assert base.class_names == ("apple", "pear", "plum")
    np.testing.assert_array_equal(lora_layers(base)[0].lora_kernel_b, 1)
    for actual, expected in zip(base.get_layer("head").get_weights(), head, strict=True):
        np.testing.assert_array_equal(actual, expected)


WRONG = {
    "another rank": ({"rank": 3, "alpha": 4.5}, "misshapen: 'block_0/attention/query/lora_kernel"),
    "another depth": ({"depth": 1}, "unused: .*block_1"),
    "other layers": ({"layers": ("query",)}, "unused: 'block_0/attention/key/lora_kernel_a'"),
    "another alpha": ({"alpha": 4}, "alpha / rank is 1.5, not 2"),
    "another head": ({"num_classes": 4}, "misshapen: 'head/kernel"),
}


@pytest.mark.parametrize("name", WRONG)
def test_adapters_of_other_models(name, tmp_path):
    options, message = WRONG[name]
    keras_vit.save_adapter(tuned(), tmp_path / "adapter.safetensors")
    model = fresh(**options)
    before = logits_of(model)
    with pytest.raises(ValueError, match=message):
        keras_vit.load_adapter(model, tmp_path / "adapter.safetensors")
    np.testing.assert_array_equal(logits_of(model), before)


def test_peft_has_no_place_for_other_models(tmp_path):
    with pytest.raises(ValueError, match="that is not transformers' ViT"):
        keras_vit.save_adapter(tuned(pooling="gap"), tmp_path / "peft")


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    model, path = tuned(), tmp_path / "adapter.safetensors"
    keras_vit.save_adapter(model, path)
    good = path.read_bytes()
    model.get_layer("head").bias.assign(np.full(3, np.nan, "float32"))
    with pytest.raises(ValueError, match="head/bias has 3 NaN"):
        keras_vit.save_adapter(model, path)
    assert path.read_bytes() == good


def test_a_part_of_a_file_is_refused(tmp_path):
    path = tmp_path / "adapter.safetensors"
    keras_vit.save_adapter(tuned(), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="must be a complete file of arrays"):
        keras_vit.load_adapter(fresh(), path)
