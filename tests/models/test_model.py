"""What models carry, what their calls check, and how they are compiled."""

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
    model.thresholds = [0.5, 0.25, 0.125]
    model.save(tmp_path / "model.keras")
    for each in (keras.models.load_model(tmp_path / "model.keras"), keras_vit.resize(model, 32)):
        assert each.thresholds == (0.5, 0.25, 0.125)
    assert keras_vit.replace_head(model, 3).thresholds is None
    with pytest.raises(ValueError, match="must be 3 numbers between 0 and 1, one for each class"):
        model.thresholds = (0.5, 0.5)


def test_models_carry_whether_they_predict_values(tmp_path):
    model = vit(num_classes=1)
    model.predicts_values, model.class_names = True, ["age"]
    model.save(tmp_path / "model.keras")
    for each in (keras.models.load_model(tmp_path / "model.keras"), keras_vit.resize(model, 32)):
        assert each.predicts_values and each.class_names == ("age",)
    assert not keras_vit.replace_head(model, 3).predicts_values


@pytest.mark.parametrize(
    ("loss", "options", "is_wrong"),
    [
        (LOSS, {}, True),
        (keras.losses.BinaryCrossentropy(name="bce"), {}, True),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), {}, False),
        (LOSS, {"classifier_activation": "softmax"}, False),
        ("mse", {}, False),
    ],
)
def test_a_loss_of_probabilities_is_warned_of(loss, options, is_wrong, caplog):
    model = vit(**options)
    model.compile("sgd", loss)
    warn_of_loss(model)
    assert ("takes probabilities" in caplog.text) == is_wrong


@pytest.mark.slow
def test_fit_of_a_loaded_model_warns(caplog, tmp_path):
    model = vit()
    model.compile("sgd", LOSS)
    model.save(tmp_path / "model.keras")
    # Keras compiles a loaded model only if its class has the `compile` of Keras.
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(np.zeros((2, 16, 16, 3)), np.zeros(2), verbose=0)
    assert "takes probabilities" in caplog.text


@pytest.mark.parametrize(
    ("build", "is_scaled"),
    [
        (vit, False),
        (lambda: vit(dtype="mixed_bfloat16"), False),
        (lambda: vit(**HALF), True),
        (lambda: resnet((1,), 32, num_classes=3, image_size=16, **HALF), True),
        (lambda: keras_vit.resize(vit(**HALF), 32), True),
        (lambda: keras_vit.replace_head(vit(**HALF), 5), True),
        (lambda: keras_vit.segmenter(keras_vit.backbone(vit(**HALF), ("P2",)), 5), True),
    ],
    ids=["float32", "bfloat16", "vit", "resnet", "resize", "replace_head", "segmenter"],
)
def test_the_loss_of_models_in_float16_is_scaled(build, is_scaled):
    """Also where the global policy is another."""
    model = build()
    model.compile("adam")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == is_scaled


def test_a_loaded_model_has_the_state_of_its_optimizer(tmp_path):
    model = vit(**HALF)
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.inner_optimizer.iterations.assign(7)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.inner_optimizer.iterations) == 7
