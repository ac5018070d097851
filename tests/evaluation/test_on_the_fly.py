"""The few-shot accuracy on the fly is that of `evaluate_fewshot`, at a smaller cost."""

import functools
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.data import load
from keras_vit.evaluation import FewshotAccuracy, evaluate_fewshot, fewshot
from keras_vit.layers import TransformerBlock
from keras_vit.models.masked_patches import masked_patch_predictor
from tests.fixtures.contract import randomise
from tests.fixtures.features import tiny_model
from tests.fixtures.images import encode, random_image

CLASSES = ("6", "7", "8", "9")


def expected_of(model, data, shots, **options):
    """Return what `evaluate_fewshot` measures."""
    accuracies = evaluate_fewshot(model, data, shots=shots, **options)
    found = {}
    for count in shots:
        values = [accuracies[count, seed] for seed in range(3)]
        found[f"fewshot_{count}shot"] = np.mean(values)
        found[f"fewshot_{count}shot_std"] = np.std(values, ddof=1)
    return found


def lora_model():
    model = tiny_model()
    return keras_vit.enable_lora(model, rank=2)


@pytest.fixture
def photos(tmp_path):
    """Noise that is darker in one class than in the other; some pictures are broken."""
    root = tmp_path / "photos"
    for split, count in (("train", 30), ("test", 25)):
        for shade, name in ((60, "cat"), (90, "dog")):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                picture = random_image(8, 8, seed=shade * index) // 4 + shade * (index % 7 != 1)
                path = root / split / name / f"{index:02}.png"
                path.write_bytes(encode(picture.astype("uint8")))
    for name in ("train/cat/03.png", "train/dog/11.png", "test/dog/05.png"):
        (root / name).write_bytes(b"broken")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        tiny_model,
        lambda: tiny_model(representation_size=6),
        lambda: tiny_model(pooling="gap", num_classes=0),
        lambda: tiny_model(dtype="mixed_bfloat16", dropout=0.1),
        lambda: keras_vit.resnet((1,), 32, num_classes=3, image_size=8),
        lora_model,
    ],
    ids=["token", "pre_logits", "no head", "bfloat16", "resnet", "lora"],
)
def test_the_accuracy_is_that_of_the_command(build):
    keras.utils.set_random_seed(0)
    model = build()
    measure = FewshotAccuracy("digits", (1, 5), classes=CLASSES)(model)
    before = measure()
    # The weights that the model has at that time.
    randomise(model)
    assert measure() == expected_of(model, "digits", (1, 5), classes=CLASSES) != before


@pytest.mark.slow
def test_the_weights_of_masked_patch_prediction_are_measured():
    model = tiny_model(num_classes=0)
    predictor = masked_patch_predictor(model)
    measure = FewshotAccuracy("digits", (2,), classes=CLASSES)(model)
    before = measure()
    randomise(predictor)
    assert measure() == expected_of(model, "digits", (2,), classes=CLASSES) != before


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "read again"])
def test_broken_images_change_the_choice_as_in_the_command(kept, photos, monkeypatch):
    if not kept:
        monkeypatch.setattr(fewshot, "MOST_KEPT", 0)
    model, data = tiny_model(), f"folder:{photos}"
    measure = FewshotAccuracy(data, (3,))(model)
    expected = expected_of(model, data, (3,))
    assert measure() == expected
    shutil.rmtree(photos)
    if kept:
        assert measure() == expected
    else:
        with pytest.raises(ValueError, match="No such file"):
            measure()


@pytest.mark.slow
@pytest.mark.backends("tensorflow", "jax", reason="torch computes without tracing")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_model_is_traced_once(dtype, monkeypatch):
    traced, call = [], TransformerBlock.call

    @functools.wraps(call)
    def count(self, *args, **kwargs):
        traced.append(self.name)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(TransformerBlock, "call", count)
    measure = FewshotAccuracy("digits", (1,), classes=CLASSES)(tiny_model(dtype=dtype))
    before = len(traced)
    measure()
    assert len(traced) > before
    before = len(traced)
    measure()
    assert len(traced) == before


@pytest.mark.slow
def test_features_are_computed_of_chosen_images_and_those_to_classify(monkeypatch):
    counts = []

    def outputs_function(model):
        def compute(images):
            counts.append(sum(len(batch) for batch in images.as_numpy_iterator()))
            return np.full((counts[-1], 2), np.nan)

        return compute

    monkeypatch.setattr(fewshot, "outputs_function", outputs_function)
    found = FewshotAccuracy("digits", (1, 2), seeds=(4,), classes=CLASSES)(tiny_model())()
    test = load("digits", "test", 8, 32, classes=CLASSES)
    assert counts == [2 * len(CLASSES), test.info.num_examples]
    # Features that are not finite have no accuracy; the run says why it stops.
    assert found == pytest.approx({"fewshot_1shot": np.nan, "fewshot_2shot": np.nan}, nan_ok=True)


def test_settings():
    fewshot = FewshotAccuracy("digits", classes=CLASSES)
    expected = {"data": "digits", "shots": [5], "seeds": [0, 1, 2], "classes": list(CLASSES)}
    assert fewshot.settings == {**expected, "upright": False}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("cifar", {}, "must be `digits`.*name='cifar'"),
        ("imagenet2012_real", {}, "`split` .* must be among test. Received: split='train'"),
        ("digits", {"shots": (0,)}, "`shots` must be positive integers"),
        ("digits", {"classes": ("ten",)}, "`classes` must be among 0, 1"),
    ],
)
def test_wrong_arguments(data, options, message):
    with pytest.raises(ValueError, match=message):
        FewshotAccuracy(data, **options)


def test_splits_without_images(photos):
    for path in photos.glob("test/*/*.png"):
        path.unlink()
    with pytest.raises(ValueError, match="The split 'test' of the folder .* must have an image"):
        FewshotAccuracy(f"folder:{photos}")


def test_models_without_one_vector():
    with pytest.raises(ValueError, match="`model` must map RGB images to a vector"):
        FewshotAccuracy("digits", classes=CLASSES)(tiny_model(pooling=None, num_classes=0))
