"""The model that predicts masked patches, and how it shares the weights of another."""

import keras
import numpy as np
import pytest

from keras_vit.models import vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.models.resnet import resnet
from tests.fixtures.contract import to_numpy
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")

OPTIONS = [
    {},
    {"pooling": "gap", "representation_size": 6},
    {"pooling": "map", "image_size": (8, 16)},
    {"pooling": None, "num_classes": 0},
    {"num_registers": 2, "pre_norm": True, "dropout": 0.1},
    {"position_embedding": "sincos2d", "pooling": "gap", "class_token": True, "fc_norm": True},
    {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 1},
    {"position_placement": "every_layer_shared", "pooling": "gap"},
    {"position_placement": "every_layer", "position_embedding": "learned2d"},
    {"axial": True, "pooling": "gap"},
]


def call(model, inputs):
    return to_numpy(model(inputs, training=False))


def untouched(batch_size, num_patches):
    return np.broadcast_to(np.arange(num_patches, dtype="int32"), (batch_size, num_patches))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_untouched_patches_have_the_tokens_of_the_model(options):
    model = vision_transformer(**{**TINY, **options})
    predictor = masked_patch_predictor(model)
    tokens = keras.Model(predictor.input, predictor.get_layer("patch_head").input)
    batch = images(2, *model.input_shape[1:])
    num_patches = predictor.output_shape[1]
    inputs = {"images": batch, "corruption": untouched(2, num_patches)}
    ours = call(tokens, inputs)
    last = "block_1" if options.get("fc_norm") else "encoder_norm"
    expected = keras.Model(model.input, model.get_layer(last).output)(batch, training=False)
    if options.get("fc_norm"):
        expected = model.get_layer("fc_norm")(expected)
    # TensorFlow 2.18 adds in another order.
    np.testing.assert_allclose(ours, to_numpy(expected)[:, -num_patches:], rtol=1e-6, atol=1e-6)
    inputs["corruption"] = np.full((2, num_patches), -1, "int32")
    hidden = call(tokens, inputs)
    # Nothing is left of the images. In another place of the batch, sums may be rounded otherwise.
    np.testing.assert_array_equal(call(tokens, {**inputs, "images": batch[::-1]}), hidden)
    assert not np.array_equal(hidden, ours)


@pytest.mark.parametrize(
    ("target", "shape"),
    [("mean_color", (8, 512)), ("downsized", (8, 16, 512)), ("pixels", (8, 96))],
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_outputs(target, shape, dtype):
    model = vision_transformer(**{**TINY, "patch_size": (4, 8), "dtype": dtype})
    predictor = masked_patch_predictor(model, target)
    assert predictor.output_shape == (None, *shape)
    assert predictor.output.dtype == "float32"
    assert predictor.get_layer("corrupt_patches").compute_dtype == dtype.removeprefix("mixed_")


@pytest.mark.slow
def test_the_predictor_trains_the_model_and_is_resumed(tmp_path):
    model = vision_transformer(**TINY)
    before = {weight.path: to_numpy(weight.value) for weight in model.weights}
    predictor = compiled_predictor(model)
    predictor.get_layer("patch_head").kernel.assign(images(8, 48))
    corruption = untouched(4, 16).copy()
    corruption[:, ::2] = -1
    inputs = {"images": images(4, 16, 16, 3), "corruption": corruption}
    predictor.fit(inputs, images(4, 16, 48), verbose=0)
    for weight in model.weights:
        is_behind = weight.path.startswith("head/")
        # The softmax takes the same off every key: the true gradient is zero.
        if not weight.path.endswith("key/bias"):
            is_same = np.array_equal(to_numpy(weight.value), before[weight.path])
            assert is_same == is_behind, weight.path
    # It is reloaded; and one that is made anew takes the optimizer's state from the file, too.
    path = tmp_path / "predictor.keras"
    predictor.save(path)
    loaded, again = keras.models.load_model(path), compiled_predictor(vision_transformer(**TINY))
    again.load_weights(path)
    for other in (loaded, again):
        np.testing.assert_array_equal(call(other, inputs), call(predictor, inputs))
    for ours, other in zip(again.optimizer.variables, predictor.optimizer.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(other.value))


def compiled_predictor(model):
    predictor = masked_patch_predictor(model, "pixels")
    predictor.compile(keras.optimizers.Adam(0.01), "mse")
    # Made while TensorFlow traces the first step, its variables would have it traced twice.
    predictor.optimizer.build(predictor.trainable_variables)
    return predictor


@pytest.mark.parametrize(
    ("build", "target", "message"),
    [
        (lambda: vision_transformer(**TINY), "colour", "`target` must be one of"),
        (
            lambda: resnet((1,), width=32, num_classes=2, image_size=32),
            "pixels",
            "one `PatchEmbedding`, whose patches can be masked",
        ),
        (lambda: of_keras(vision_transformer(**TINY)), "pixels", "must be one of the builders"),
    ],
)
def test_what_cannot_be_predicted_is_refused(build, target, message):
    with pytest.raises(ValueError, match=message):
        masked_patch_predictor(build(), target)


def of_keras(model):
    return keras.Model(model.input, model.output)
