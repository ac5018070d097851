"""`compile` scales the loss of models in float16, also where the global policy is another."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import resnet, vision_transformer
from tests.fixtures.contract import to_numpy
from tests.fixtures.tiny import TINY, images

DTYPE = {"dtype": "mixed_float16"}


def vit(**options):
    return vision_transformer(**{**TINY, **options})


@pytest.mark.parametrize(
    "build",
    [
        lambda: vit(**DTYPE),
        lambda: resnet((1,), 32, num_classes=3, image_size=16, **DTYPE),
        lambda: keras_vit.resize(vit(**DTYPE), 32),
        lambda: keras_vit.replace_head(vit(**DTYPE), 5),
        lambda: keras_vit.segmenter(keras_vit.backbone(vit(**DTYPE), ("P2",)), 5),
    ],
    ids=["vit", "resnet", "resize", "replace_head", "segmenter"],
)
def test_models_in_float16(build):
    model = build()
    model.compile("adam")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_other_models(dtype):
    model = vit(dtype=dtype)
    model.compile("adam")
    assert isinstance(model.optimizer, keras.optimizers.Adam)


def test_a_loaded_model_has_the_state_of_its_optimizer(tmp_path):
    model = vit(**DTYPE)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.inner_optimizer.iterations.assign(7)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.inner_optimizer.iterations) == 7


@pytest.mark.slow
def test_small_gradients_are_not_lost():
    """Without scaling, those of most kernels would be below the least number of float16."""
    kernels = {}
    for dtype in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(0)
        model = vit(dtype=dtype)
        model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(8, 3)))
        kernel = model.trainable_variables[0]
        before = to_numpy(kernel.value)
        model.compile(keras.optimizers.SGD(1e6), keras.losses.MeanSquaredError())
        model.train_on_batch(images(4, 16, 16, 3), np.zeros((4, 3)), np.full(4, 1e-6))
        kernels[dtype] = to_numpy(kernel.value) - before
    lost = np.linalg.norm(kernels["mixed_float16"] - kernels["float32"])
    assert lost < 0.05 * np.linalg.norm(kernels["float32"])
