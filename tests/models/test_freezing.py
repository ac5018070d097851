"""Surgery and files keep what is frozen, layer by layer and variable by variable."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers.layer import children
from keras_vit.models import freeze_blocks, replace_head, resize, vision_transformer
from keras_vit.models.resnet import resnet
from keras_vit.serving.formats.graph import portable
from tests.fixtures.tiny import TINY
from tests.layers.test_contract import CASES

OPTIONS = {
    "token": {"representation_size": 6, "qk_norm": True, "layer_scale": 0.5},
    "map": {"pooling": "map", "num_registers": 1, "pre_norm": True},
    "hybrid": {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 1},
}
HEAD = ("pre_logits", "head")
NEW_HEAD = {"head/kernel", "head/bias"}


def build(kind):
    if kind == "resnet":
        return resnet((1,), width=32, num_classes=3, image_size=16)
    return vision_transformer(**{**TINY, **OPTIONS[kind]})


def parts(model):
    """Each layer and sublayer by its path, and each variable by its own."""
    found = {}

    def visit(layer, path):
        # Keras makes new inputs for a model that it loads, and they have no variables.
        if not isinstance(layer, keras.layers.InputLayer):
            found[path] = layer
        for child in children(layer):
            visit(child, f"{path}/{child.name}")

    for layer in model.layers:
        visit(layer, f"layer {layer.name}")
    return found | {weight.path: weight for weight in model.weights}


def flags(model, leave_out=()):
    return {
        path: part.trainable
        for path, part in parts(model).items()
        if path.removeprefix("layer ").split("/")[0] not in leave_out
    }


def trained(model, leave_out=()):
    paths = {weight.path for weight in model.trainable_weights}
    return {path for path in paths if not path.startswith(leave_out)} if leave_out else paths


def is_kept_by_files(model, path):
    """Whether a file records it: not variables of Keras's own layers, one by one."""
    if path.startswith("layer "):
        return True
    return not type(model.get_layer(path.split("/")[0])).__module__.startswith("keras.")


def freeze_at_random(model, seed):
    """Freeze the model or not, then change some of its parts, and parts of these."""
    model.trainable = seed % 2 == 0
    model_parts = parts(model)
    paths = [path for path in model_parts if is_kept_by_files(model, path)]
    for path in np.random.default_rng(seed).choice(paths, 12, replace=False):
        model_parts[path].trainable = not model_parts[path].trainable
    assert set(flags(model).values()) == {True, False}


def check_kept(model, new, leave_out=()):
    assert new.trainable == model.trainable
    assert flags(new, leave_out) == flags(model, leave_out)
    assert trained(new, leave_out) == trained(model, leave_out)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [*OPTIONS, "resnet"])
def test_every_way_from_a_model_to_a_model_keeps_what_is_frozen(kind, seed, tmp_path):
    model, path = build(kind), tmp_path / "model.keras"
    freeze_at_random(model, seed)
    model.save(path)
    check_kept(model, keras.models.load_model(path))
    check_kept(model, resize(model, 32))
    check_kept(model, keras_vit.from_checkpoint(path, image_size=32))
    check_kept(model, replace_head(model, 0), leave_out=HEAD)
    for new in (replace_head(model, 5), keras_vit.from_checkpoint(path, num_classes=5)):
        assert trained(new) == trained(model, leave_out=HEAD) | NEW_HEAD


def test_surgery_keeps_frozen_variables_of_layers_of_keras():
    model = vision_transformer(**TINY)
    model.get_layer("encoder_norm").gamma.trainable = False
    check_kept(model, resize(model, 32))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_layers_that_are_frozen_before_they_are_built(case):
    layer_class, arguments, input_shapes, _, num_weights = case
    layer = layer_class(**arguments, trainable=False)
    layer(*(keras.KerasTensor((None, *shape)) for shape in input_shapes))
    assert len(layer.weights) == num_weights
    assert not any(weight.trainable for weight in layer.weights)
    layer.trainable = True
    assert len(layer.trainable_weights) == num_weights


@pytest.mark.parametrize("seed", range(2))
def test_zero_frozen_blocks_train_everything(seed):
    model = vision_transformer(**TINY)
    freeze_at_random(model, seed)
    freeze_blocks(model, 0)
    assert all(flags(model).values())
    assert trained(model) == {weight.path for weight in model.weights}


def test_the_copy_that_is_exported_has_no_frozen_weights():
    """The converters take trainable weights for inputs, and all others for constants."""
    model = vision_transformer(**TINY)
    freeze_blocks(model, 1)
    assert trained(portable(model)) == {weight.path for weight in model.weights}


@pytest.mark.parametrize("num_blocks", [-1, 3])
def test_wrong_numbers_of_blocks_are_refused(num_blocks):
    with pytest.raises(ValueError, match="`num_blocks` must be an integer from 0 to 2"):
        freeze_blocks(vision_transformer(**TINY), num_blocks)
