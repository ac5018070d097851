"""Images of another shape or scale than a model's: refused, never answered."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection.analyses import attention_distance
from keras_vit.inspection.figures.drawing import draw_masked_patches, draw_predictions
from keras_vit.inspection.report import write_report
from keras_vit.models import vision_transformer
from keras_vit.models.resnet import resnet
from tests.fixtures.tiny import TINY

RULE = r"must be scaled to \[-1, 1\], as `keras_vit.preprocess` does\. Received: "
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
SCALED = keras_vit.preprocess(PIXELS)
LABELS = np.arange(4) % 3
SHAPES = {
    # Four times, or as many patches as an image of 16 x 16 pixels has; incomplete patches.
    "larger": (1, 32, 32, 3),
    "wide": (1, 8, 32, 3),
    "incomplete": (1, 18, 18, 3),
    "channels first": (4, 3, 16, 16),
    "six channels": (2, 16, 16, 6),
    "one channel": (2, 16, 16, 1),
}
# By models of images of any size.
ANSWERED = {"ResNet": ("larger", "wide", "incomplete"), "any size": ("larger", "wide")}
HYBRID = {"resnet_stages": (1,), "resnet_width": 32, "patch_size": 2, "image_size": 16}


@pytest.fixture
def compiled():
    model = vision_transformer(**TINY)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


CALLS = {
    "fit": lambda model, images, _: model.fit(images, LABELS, verbose=0),
    "evaluate": lambda model, images, _: model.evaluate(images, LABELS, verbose=0),
    "predict": lambda model, images, _: model.predict(images, verbose=0),
    "features": lambda model, images, _: keras_vit.features(model, images),
    "maps": lambda model, images, _: keras_vit.attention_maps(model, images),
    "rollout": lambda model, images, _: keras_vit.attention_rollout(model, images),
    "distance": lambda model, images, _: attention_distance(model, images),
    "report": lambda model, images, path: write_report(model, images, path),
    "predictions": lambda model, images, path: draw_predictions(
        model, images, np.zeros(4, int), ["a", "b", "c"], path / "picture.png"
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("images", "received"),
    [(PIXELS, "of dtype uint8"), (PIXELS.astype("float32"), r"values from 0\.0 to 255\.0")],
    ids=["integers", "pixels"],
)
def test_pixels_are_refused(call, images, received, compiled, tmp_path):
    with pytest.raises(ValueError, match=f"{RULE}.*{received}"):
        call(compiled, images, tmp_path)
    assert not list(tmp_path.iterdir())


def test_pixels_of_masked_patches_are_refused(tmp_path):
    inputs = {"images": PIXELS, "corruption": np.zeros((4, 16), "int32")}
    predictor = vision_transformer(**{**TINY, "pooling": None, "num_classes": 0})
    batch = inputs, np.zeros((4, 16), "int32"), np.ones((4, 16))
    with pytest.raises(ValueError, match=f"{RULE}.*of dtype uint8"):
        draw_masked_patches(predictor, batch, tmp_path / "x.png")


@pytest.mark.slow
@pytest.mark.backends("tensorflow", reason="the others compile for each shape")
@pytest.mark.parametrize("family", ["ViT", "hybrid", "ResNet", "any size"])
@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_of_any_shape(family, shape):
    """Keras traces one after two shapes, in which TensorFlow answered whatever came."""
    import tensorflow as tf

    images = keras.Input((16, 16, 3))
    if family == "ResNet":
        model = resnet(stages=(1,), width=32, image_size=16, num_classes=3)
    else:
        sizes = HYBRID if family == "hybrid" else {"image_size": 16}
        model = vision_transformer(**{**TINY, **sizes, "num_classes": 3})
    if family == "any size":
        model, images = keras_vit.resize(model), keras.Input((None, None, 3))
    # Without the checks of arrays.
    plain = keras.Model(images, model(images))
    plain.predict(SCALED, verbose=0)
    plain.predict(SCALED[:2], verbose=0)
    wrong = np.zeros(SHAPES[shape], "float32")
    if shape in ANSWERED.get(family, ()):
        assert len(plain.predict(wrong, verbose=0)) == len(wrong)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError):
            plain.predict(wrong, verbose=0)
    assert len(plain.predict(SCALED[:3], verbose=0)) == 3
