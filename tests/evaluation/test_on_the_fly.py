"""The few-shot accuracy on the fly is that of `evaluate_fewshot`, at a smaller cost."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.evaluation import FewshotAccuracy, evaluate_fewshot, fewshot
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
        lambda: keras_vit.enable_lora(tiny_model(), rank=2),
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
@pytest.mark.parametrize("most_kept", [fewshot.MOST_KEPT, 0], ids=["kept", "read again"])
def test_broken_images_change_the_choice_as_in_the_command(most_kept, photos, monkeypatch):
    monkeypatch.setattr(fewshot, "MOST_KEPT", most_kept)
    model, data = tiny_model(), f"folder:{photos}"
    measure = FewshotAccuracy(data, (3,))(model)
    assert measure() == measure() == expected_of(model, data, (3,))
