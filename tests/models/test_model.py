"""What models carry, what their calls check, and how they are compiled."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import ImageModel, vision_transformer
from keras_vit.models.image_model import warn_of_loss
from keras_vit.models.resnet import resnet
from keras_vit.models.vit import build_model
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import FAMILIES, small_classifier
from tests.fixtures.tiny import TINY, images

LOSS = "sparse_categorical_crossentropy"
HALF = {"dtype": "mixed_float16"}


def vit(**options):
    return vision_transformer(**{**TINY, **options})


@pytest.fixture
def built(monkeypatch):
    """Names of the models that are built."""
    names = []
    new = ImageModel.__new__

    # Versions of Keras differ in which other `__init__` they accept.
    def count(cls, *args, **kwargs):
        names.append(kwargs.get("name"))
        return new(cls, *args, **kwargs)

    monkeypatch.setattr(ImageModel, "__new__", count)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, "bit"])
def test_options_build_the_same_architecture(family, tmp_path):
    model = small_classifier(family)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    copy = ImageModel.from_config(model.get_config())
    assert loaded.options == copy.options == model.options
    models = [
        *(model, loaded, copy, keras_vit.resize(model, (32, 16))),
        *(keras_vit.replace_head(model, 5), keras_vit.replace_head(model, 0)),
    ]
    for each in models:
        assert isinstance(each, ImageModel)
        again = build_model(each.options)
        assert again.input_shape == each.input_shape
        shapes, expected = ({w.path: tuple(w.shape) for w in x.weights} for x in (each, again))
        assert shapes == expected
        again.set_weights(each.get_weights())
        batch = images(2, *each.input_shape[1:])
        np.testing.assert_allclose(to_numpy(again(batch)), to_numpy(each(batch)), atol=1e-5)


def test_options_are_plain_values():
    model = vit(image_size=[16, 24], classifier_activation=keras.activations.softmax)
    assert model.options.image_size == (16, 24)
    assert model.options.classifier_activation == "softmax"
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.options.depth = 7


def test_a_model_keeps_what_functional_models_keep(tmp_path):
    model = vit()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    inner = keras.Model(loaded.input, loaded.get_layer("block_1").output)
    assert inner.output_shape == (None, 17, 8)
    assert type(inner) is not ImageModel
    assert keras.models.clone_model(model).options is None


USES = {
    "attention_maps": lambda model, _: keras_vit.attention_maps(model, images(1, 16, 16, 3)),
    "export": lambda model, path: keras_vit.export(model, path / "export"),
    "features": lambda model, _: keras_vit.features(model, images(1, 16, 16, 3)),
    "save": lambda model, path: keras_vit.save_checkpoint(model, path / "model.npz", "google"),
}
EXPORT = [
    pytest.mark.slow,
    pytest.mark.backends("tensorflow", "jax", reason="torch writes no SavedModel"),
]


@pytest.mark.parametrize(
    "use", [pytest.param(use, marks=EXPORT if use == "export" else ()) for use in USES]
)
def test_a_model_is_not_built_a_second_time(use, built, tmp_path):
    USES[use](vit(), tmp_path)
    assert built == ["vision_transformer"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_in_hdf5(tmp_path):
    model = small_classifier("token")
    model.save(tmp_path / "model.h5")
    # Such a file has the name of a class without its package.
    own = {"ImageModel": ImageModel}
    loaded = keras.models.load_model(tmp_path / "model.h5", custom_objects=own)
    assert isinstance(loaded, ImageModel) and loaded.options == model.options
    pictures = images(2, *model.input_shape[1:])
    expected = model.predict(pictures, verbose=0)
    np.testing.assert_array_equal(loaded.predict(pictures, verbose=0), expected)


def test_models_carry_thresholds(tmp_path):
    """Those of several labels per image."""
    model = vit()
    assert model.thresholds is None
    model.thresholds = [0.5, 0.25, 0.125]
    model.save(tmp_path / "model.keras")
    for each in (
        keras.models.load_model(tmp_path / "model.keras"),
        ImageModel.from_config(model.get_config()),
        keras_vit.resize(model, 32),
        keras_vit.from_checkpoint(tmp_path / "model.keras"),
    ):
        assert each.thresholds == (0.5, 0.25, 0.125)
    assert keras_vit.replace_head(model, 3).thresholds is None
    assert keras_vit.from_checkpoint(tmp_path / "model.keras", num_classes=2).thresholds is None
    with pytest.raises(ValueError, match="must be 3 numbers between 0 and 1, one for each class"):
        model.thresholds = (0.5, 0.5)
    assert model.thresholds == (0.5, 0.25, 0.125)
    model.thresholds = None
    assert model.thresholds is None


@pytest.mark.parametrize(
    ("loss", "options", "name"),
    [
        (LOSS, {}, LOSS),
        (keras.losses.CategoricalCrossentropy(), {}, "categorical_crossentropy"),
        (keras.losses.binary_crossentropy, {}, "binary_crossentropy"),
        (keras.losses.BinaryCrossentropy(name="bce"), {}, "binary_crossentropy"),
        ([LOSS], {}, None),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), {}, None),
        (LOSS, {"classifier_activation": "softmax"}, None),
        ("mse", {}, None),
        (None, {}, None),
    ],
)
def test_a_loss_of_probabilities(loss, options, name, caplog):
    model = vit(**options)
    model.compile("sgd", loss)
    warn_of_loss(model)
    assert bool(caplog.records) == bool(name)
    assert not name or f"returns logits, and the loss {name} takes probabilities" in caplog.text


@pytest.mark.slow
def test_fit_warns(caplog, tmp_path):
    model = vit()
    model.compile("sgd", LOSS)
    model.save(tmp_path / "model.keras")
    # Keras compiles a loaded model only if its class has the `compile` of Keras.
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(np.zeros((2, 16, 16, 3)), np.zeros(2), verbose=0)
    assert "takes probabilities" in caplog.text


@pytest.mark.parametrize(
    "build",
    [
        lambda: vit(**HALF),
        lambda: resnet((1,), 32, num_classes=3, image_size=16, **HALF),
        lambda: keras_vit.resize(vit(**HALF), 32),
        lambda: keras_vit.replace_head(vit(**HALF), 5),
        lambda: keras_vit.segmenter(keras_vit.backbone(vit(**HALF), ("P2",)), 5),
    ],
    ids=["vit", "resnet", "resize", "replace_head", "segmenter"],
)
def test_the_loss_of_models_in_float16_is_scaled(build):
    """Also where the global policy is another."""
    model = build()
    model.compile("adam")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_loss_of_other_models_is_not_scaled(dtype):
    model = vit(dtype=dtype)
    model.compile("adam")
    assert isinstance(model.optimizer, keras.optimizers.Adam)


def test_a_loaded_model_has_the_state_of_its_optimizer(tmp_path):
    model = vit(**HALF)
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
