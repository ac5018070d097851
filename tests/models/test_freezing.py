"""Surgery and files keep what is frozen, layer by layer and variable by variable."""

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit.layers.layer import children
from keras_vit.models import freeze_blocks, replace_head, resize, vision_transformer
from keras_vit.models.resnet import resnet
from keras_vit.serving.formats.graph import portable
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.tiny import TINY, images
from tests.layers.test_contract import CASES

OPTIONS = {
    "token": {"representation_size": 6, "qk_norm": True, "layer_scale": 0.5},
    "map": {"pooling": "map", "num_registers": 1, "pre_norm": True},
    "hybrid": {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 1},
}
HEAD = ("pre_logits", "head")


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


def trained(model):
    return {weight.path for weight in model.trainable_weights}


def save_and_load(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


def is_kept_by_files(model, path):
    """Whether a file records it: not variables of Keras's own layers, one by one."""
    if path.startswith("layer "):
        return True
    return not type(model.get_layer(path.split("/")[0])).__module__.startswith("keras.")


def check_kept(model, new, leave_out=()):
    assert new.trainable == model.trainable
    assert flags(new, leave_out) == flags(model, leave_out)
    assert leave_out or trained(new) == trained(model)


def freeze(*frozen):
    for part in frozen:
        part.trainable = False


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(k, marks=pytest.mark.large if k == "map" else ()) for k in OPTIONS), "resnet"],
)
@settings(
    max_examples=4,
    # To shrink an example takes minutes, and they are small.
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_sets_are_kept(kind, data, tmp_path):
    if kind == "resnet":
        model = resnet((1, 1), width=32, num_classes=3, image_size=16)
    else:
        model = vision_transformer(**{**TINY, **OPTIONS[kind]})
    model_parts = parts(model)
    paths = sorted(path for path in model_parts if is_kept_by_files(model, path))
    if data.draw(st.booleans(), "whole model"):
        freeze(model)
    steps = st.tuples(st.sampled_from(paths), st.booleans())
    for path, flag in data.draw(st.lists(steps, min_size=1, max_size=12), "steps"):
        model_parts[path].trainable = flag
    check_kept(model, save_and_load(model, tmp_path))
    # Surgery keeps them too.
    others = sorted(set(model_parts) - set(paths))
    freeze(*(model_parts[path] for path in data.draw(st.sets(st.sampled_from(others)), "others")))
    check_kept(model, resize(model, 32))
    new = replace_head(model, 5)
    assert trained(new) - {"head/kernel", "head/bias"} == {
        path for path in trained(model) if not path.startswith(HEAD)
    }
    assert trained(new) >= {"head/kernel", "head/bias"}
    check_kept(model, replace_head(model, 0), leave_out=HEAD)


def unfreeze_one_block_of_a_frozen_model(model):
    freeze(model)
    model.get_layer("block_1").trainable = True


FREEZE = {
    "one block": lambda model: freeze_blocks(model, 1),
    "all but one block": unfreeze_one_block_of_a_frozen_model,
    "the model": freeze,
    "all but the head": lambda model: freeze(*model.layers[:-1]),
    "layers": lambda model: freeze(model.get_layer("class_token"), model.get_layer("encoder_norm")),
    "parts of layers": lambda model: freeze(
        model.get_layer("block_1").attention,
        model.get_layer("block_0").mlp.dense_1.kernel,
        model.get_layer("patch_embedding").projection.bias,
        model.get_layer("position_embedding").embedding,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("some", FREEZE)
def test_every_way_from_a_model_to_a_model_keeps_what_is_frozen(some, tmp_path):
    model = vision_transformer(**TINY)
    FREEZE[some](model)
    check_kept(model, save_and_load(model, tmp_path))
    check_kept(model, resize(model, 32))
    path = tmp_path / "model.keras"
    check_kept(model, keras_vit.from_checkpoint(path, image_size=32))
    check_kept(model, replace_head(keras.models.load_model(path), 0), leave_out=HEAD)
    kept = {path for path in trained(model) if not path.startswith(HEAD)}
    for new in (replace_head(model, 5), keras_vit.from_checkpoint(path, num_classes=5)):
        assert trained(new) == kept | {"head/kernel", "head/bias"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_layers_that_are_frozen_before_they_are_built(case):
    layer_class, arguments, input_shapes, _, num_weights = case
    frozen = layer_class(**arguments, trainable=False)
    later = layer_class(**arguments)
    later.trainable = False
    for layer in (frozen, later):
        layer(*(keras.KerasTensor((None, *shape)) for shape in input_shapes))
        assert len(layer.weights) == num_weights
        assert not any(weight.trainable for weight in layer.weights)
        layer.trainable = True
        assert len(layer.trainable_weights) == num_weights


def test_files_list_frozen_parts_only_if_they_differ_from_their_layer():
    model = vision_transformer(**TINY)
    freeze(model.get_layer("block_0"))
    block = model.get_layer("block_0")
    assert block.get_build_config() == {"input_shape": (None, 17, 8)}
    block.attention.trainable = True
    assert block.get_build_config()["frozen"]["layers"][:2] == ["layer_norm_1", "dropout"]
    # Without the list, the layer's own flag counts.
    new = keras_vit.TransformerBlock.from_config(block.get_config())
    new.build_from_config({"input_shape": (None, 17, 8)})
    assert not any(weight.trainable for weight in new.weights)


@pytest.mark.parametrize("some", FREEZE)
def test_zero_frozen_blocks_train_everything(some):
    model = vision_transformer(**TINY)
    FREEZE[some](model)
    freeze_blocks(model, 0)
    assert all(flags(model).values())
    assert trained(model) == {weight.path for weight in model.weights}


def test_the_copy_that_is_exported_has_no_frozen_weights():
    """The converters take trainable weights for inputs, and all others for constants."""
    model = vision_transformer(**TINY)
    freeze_blocks(model, 1)
    assert trained(portable(model)) == {weight.path for weight in model.weights}


def test_the_copy_that_is_exported_need_not_be_compiled_again(caplog):
    model = vision_transformer(**TINY)
    model.compile("sgd", "mse")
    portable(model)
    assert not caplog.messages


@pytest.mark.slow
def test_what_is_frozen_is_not_trained(tmp_path):
    """The flags are those that training follows."""
    model = vision_transformer(**TINY)
    freeze_blocks(model, 1)
    new = replace_head(resize(save_and_load(model, tmp_path), 8), 2)
    randomise(new)
    before = {weight.path: to_numpy(weight.value) for weight in new.weights}
    new.compile(keras.optimizers.Adam(0.01), "mse")
    new.optimizer.build(new.trainable_variables)
    new.fit(images(4, 8, 8, 3), np.ones((4, 2)), verbose=0)
    moved = {w.path for w in new.weights if not np.array_equal(to_numpy(w.value), before[w.path])}
    # The softmax takes the same off every key: the true gradient is zero.
    assert moved | {"block_1/attention/key/bias"} == trained(new)


@pytest.mark.parametrize("num_blocks", [-1, 3, 1.0, "1", True, None])
def test_wrong_numbers_of_blocks(num_blocks):
    model = vision_transformer(**TINY)
    before = trained(model)
    with pytest.raises(ValueError, match="`num_blocks` must be an integer from 0 to 2, .* num_bl"):
        freeze_blocks(model, num_blocks)
    assert trained(model) == before
