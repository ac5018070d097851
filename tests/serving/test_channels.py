"""Exports of models for images of one, two, four and thirteen channels."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.core.image_spec import ImageSpec
from keras_vit.data.images.geometry import evaluation_image
from keras_vit.models.surgery import with_channels
from keras_vit.serving import Predictor
from keras_vit.serving.export import export
from keras_vit.serving.runner import load_runner
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import classifier
from tests.fixtures.tiny import images

TOLERANCE = {"rtol": 0, "atol": 1e-5}


def model_of(channels):
    return with_channels(classifier(), channels)


def pixels_of(channels, size=(20, 30)):
    return np.random.default_rng(1).integers(0, 256, (*size, channels), "uint8")


def logits_of(model, pixels):
    batch = evaluation_image(pixels, (16, 16), model.image_spec)
    return to_numpy(model(batch[None]))[0]


@pytest.fixture(scope="module", params=[1, 2, 4, 13])
def exported(request, tmp_path_factory):
    """A model and its SavedModel."""
    model = model_of(request.param)
    path = export(model, tmp_path_factory.mktemp("export"), warmup_batch_sizes=())
    return model, path, tf.saved_model.load(str(path)).signatures


def test_signatures_of_encoded_images_are_only_for_channels_of_pngs(exported):
    model, _, signatures = exported
    has_bytes = model.input_shape[-1] in (1, 4)
    assert set(signatures) == {"serving_default", "uint8", "float"} - {
        "float" if False else "uint8" if not has_bytes else None
    }
