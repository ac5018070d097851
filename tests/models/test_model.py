"""Models carry the options that they were built with."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.core.images import ImageSpec
from keras_vit.core.logging import log_once
from keras_vit.models import ImageModel, introspection, vision_transformer
from keras_vit.models.model import image_spec_of, options_of, read_options
from keras_vit.serving.formats.graph import portable
from tests.fixtures.models import FAMILIES, small_classifier
from tests.fixtures.tiny import TINY, images


@pytest.fixture
def reads(monkeypatch):
    """Names of the models whose options are read from their layers."""
    names = []

    def read(model):
        names.append(model.name)
        return read_options(model)

    monkeypatch.setattr(introspection, "read_options", read)
    return names


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
def test_options_are_those_of_the_layers(family, tmp_path):
    model = small_classifier(family)
    model.save(tmp_path / "model.keras")
    models = [
        model,
        keras.models.load_model(tmp_path / "model.keras"),
        ImageModel.from_config(model.get_config()),
        keras_vit.resize(model, (32, 16)),
        keras_vit.replace_head(model, 5),
        keras_vit.replace_head(model, 0),
    ]
    for each in models:
        assert isinstance(each, ImageModel)
        assert each.options == read_options(each)
    assert models[1].options == models[2].options == model.options


def test_options_are_plain_values():
    model = vision_transformer(
        **{**TINY, "image_size": [16, 24]}, classifier_activation=keras.activations.softmax
    )
    assert model.options.image_size == (16, 24)
    assert model.options.classifier_activation == "softmax"
    model.options.depth = 7
    assert model.options.depth == 2


def test_a_model_keeps_what_functional_models_keep(tmp_path):
    model = vision_transformer(**TINY)
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
def test_a_model_is_not_built_a_second_time(use, built, reads, tmp_path):
    model = vision_transformer(**TINY)
    USES[use](model, tmp_path)
    assert built == ["vision_transformer"]
    assert reads == []


def test_surgery_builds_the_new_model_alone(built, reads):
    model = vision_transformer(**TINY)
    options_of(keras_vit.resize(model, 32))
    assert built == ["vision_transformer"] * 2
    options_of(keras_vit.replace_head(model, 4))
    assert reads == []


def test_options_of_a_model_composed_by_hand_are_read(reads, built, tmp_path):
    model = vision_transformer(**TINY)
    composed = keras.Model(model.input, model.output, name="composed")
    USES["save"](composed, tmp_path)
    assert reads == ["composed"]
    # One small model, to compare its layers with those of the given one.
    assert built == ["vision_transformer"] * 2
    other = keras_vit.from_checkpoint(tmp_path / "model.npz", num_heads=TINY["num_heads"])
    assert other.options == options_of(composed)


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="`vision_transformer` has no argument.*Received: colour=1"):
        vision_transformer(**TINY, colour=1)


def test_files_of_earlier_versions_have_the_defaults_of_newer_options():
    model = vision_transformer(**TINY, qk_norm=True)
    config = model.get_config()
    del config["options"]["layer_scale"], config["options"]["num_registers"]
    loaded = ImageModel.from_config(config)
    assert loaded.options == model.options


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


@pytest.mark.slow
def test_a_clone_warns_that_it_has_lost_how_images_are_resized(caplog):
    log_once.cache_clear()
    model = small_classifier("token")
    maps = keras_vit.backbone(model, ("P2", "P3"))
    copy = type(maps).from_config(maps.get_config())
    model.image_spec = ImageSpec("bicubic")
    exported = portable(model)
    exported.get_config()
    assert exported.image_spec == model.image_spec
    for each in (model, maps, copy, keras_vit.segmenter(maps, 2), exported):
        image_spec_of(each)
    assert not caplog.messages
    image_spec_of(keras.models.clone_model(model))
    assert "has no `options`: `keras.models.clone_model` loses them" in caplog.text


@pytest.mark.slow
def test_the_first_step_is_traced_once():
    """With TensorFlow, which traces a step again that has created variables."""
    model = small_classifier("token")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    train_step, calls = model.train_step, []

    def count(*args):
        calls.append(args)
        return train_step(*args)

    model.train_step = count
    model.fit(np.zeros((2, *model.input_shape[1:]), "float32"), np.zeros(2), verbose=0)
    assert len(calls) == 1
