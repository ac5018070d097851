"""Image processors of transformers: the defaults of their classes, and what cannot be done."""

import dataclasses
import json

import pytest

from keras_vit import from_checkpoint
from keras_vit.checkpoints.configuration import OPENAI as CLIP_IMAGES
from keras_vit.core.image_spec import ImageSpec
from tests.fixtures.checkpoint_files import config_next_to

SQUARE = {"height": 32, "width": 32}
WHOLE = ImageSpec("bilinear", antialias=True)
OPENAI = {"mean": CLIP_IMAGES[0], "deviation": CLIP_IMAGES[1]}
SMALLER_SIDE = ImageSpec("bicubic", antialias=True, keeps_aspect_ratio=True, **OPENAI)


def load(tmp_path, settings, case="hf_classifier"):
    path = config_next_to(case, tmp_path, {})
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
    return from_checkpoint(path)


@pytest.mark.parametrize(
    ("settings", "image_spec"),
    [
        ({"image_processor_type": "ViTImageProcessor"}, WHOLE),
        ({"feature_extractor_type": "ViTFeatureExtractor"}, WHOLE),
        ({"image_processor_type": "BitImageProcessorPil"}, SMALLER_SIDE),
        ({"image_processor_type": "DeiTImageProcessor"}, ImageSpec("bicubic", True, 224 / 256)),
        (
            {"image_processor_type": "DeiTImageProcessor", "size": 36, "crop_size": 32},
            ImageSpec("bicubic", True, 32 / 36),
        ),
        ({"image_processor_type": "SiglipImageProcessor"}, ImageSpec("bicubic", True)),
        ({"image_mean": [0.25]}, dataclasses.replace(WHOLE, mean=(0.25,))),
        (
            {"image_processor_type": "BitImageProcessor", "image_std": [1]},
            dataclasses.replace(SMALLER_SIDE, deviation=(1,)),
        ),
    ],
    ids=str,
)
def test_sizes_that_are_not_recorded(settings, image_spec, tmp_path):
    assert load(tmp_path, settings).image_spec == image_spec


def test_null_stands_for_the_default(tmp_path):
    names = ("image_mean", "do_normalize", "do_resize", "size", "rescale_factor", "resample")
    settings = {"image_processor_type": "ViTImageProcessor", **dict.fromkeys(names)}
    assert load(tmp_path, settings).image_spec == WHOLE


def test_a_file_without_a_class_is_of_the_models(tmp_path):
    model = load(tmp_path, {"image_mean": [0.5] * 3}, "hf_dinov2_classifier")
    assert model.image_spec == dataclasses.replace(SMALLER_SIDE, mean=(0.5, 0.5, 0.5))


def test_another_class_must_record_everything(tmp_path):
    settings = {"resample": 3, "image_mean": [0.25] * 3, "image_std": [0.5] * 3, "size": SQUARE}
    settings |= {"image_processor_type": "BlipImageProcessor", "do_center_crop": False}
    model = load(tmp_path, settings)
    expected = ImageSpec("bicubic", True, mean=(0.25,) * 3, deviation=(0.5,) * 3)
    assert model.image_spec == expected
    changes = [{name: ...} for name in settings.keys() - {"image_processor_type"}]
    changes += [{"image_processor_type": f"{name}ImageProcessor"} for name in ("ConvNext", "Levit")]
    for change in changes:
        wrong = {name: value for name, value in (settings | change).items() if value is not ...}
        with pytest.raises(ValueError, match="The class of an image processor must be one of ViT"):
            load(tmp_path, wrong)


@pytest.mark.parametrize(
    ("kind", "size", "crop_size"),
    [
        # Another aspect ratio, or borders.
        ("DeiT", {"height": 40, "width": 32}, SQUARE),
        ("CLIP", {"shortest_edge": 24}, SQUARE),
        ("CLIP", 32, None),
    ],
)
def test_crops_that_are_refused(kind, size, crop_size, tmp_path):
    settings = {"image_processor_type": f"{kind}ImageProcessor", "size": size}
    settings |= {"crop_size": crop_size} if crop_size else {}
    with pytest.raises(
        ValueError, match=r"how to crop their middle; .*('width'|'height'|crop_size=)"
    ):
        load(tmp_path, settings)
