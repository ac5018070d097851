"""The preprocessing of real models of other projects, and ours for the same weights."""

import io
import json
import shutil

import keras
import numpy as np
import open_clip
import PIL.Image
import pytest
import torch
import transformers

import keras_vit
from keras_vit.checkpoints.configuration import CROP
from keras_vit.checkpoints.configuration import PROCESSORS as PROCESSORS_OF_OURS
from keras_vit.core.image_spec import ImageSpec
from keras_vit.serving.image_files import preprocess_files
from tests.data.images.test_resizing import photograph
from tests.fixtures.peers.torch_models import randomise
from tests.fixtures.reference import REFERENCE

SIZE = (32, 32)
# Height and width of photographs: wide, tall, square, and smaller than the model's images.
PHOTOGRAPHS = [(75, 100), (101, 66), (60, 60), (30, 41)]
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SQUARE = {"height": 32, "width": 32}
PROCESSORS = {
    "vit": ("ViTImageProcessor", {"size": SQUARE}),
    "imagenet": ("ViTImageProcessor", {"size": SQUARE, **IMAGENET}),
    "deit": (
        "DeiTImageProcessor",
        {"size": {"height": 36, "width": 36}, "crop_size": SQUARE, **IMAGENET},
    ),
    "dinov2": (
        "BitImageProcessor",
        {"size": {"shortest_edge": 37}, "crop_size": SQUARE, **IMAGENET},
    ),
    # Its normalization is that of the class.
    "clip": ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": SQUARE}),
    "siglip": ("SiglipImageProcessor", {"size": SQUARE}),
    "dinov3": ("DINOv3ViTImageProcessor", {"size": SQUARE}),
}
# Published weights of timm whose `pretrained_cfg` is taken.
TIMM = {
    "augreg": "vit_base_patch16_224.augreg_in21k_ft_in1k",
    "dino": "vit_base_patch16_224.dino",
    "clip": "vit_base_patch16_clip_224.openai",
    # Its architectures have an epsilon of their own.
    "clip_quickgelu": "vit_base_patch16_clip_quickgelu_224.openai",
    "clip_to_imagenet": "vit_base_patch16_clip_224.openai_ft_in1k",
    "siglip": "vit_base_patch16_siglip_224.webli",
    "deit3": "deit3_small_patch16_224.fb_in1k",
    "deit_distilled": "deit_tiny_distilled_patch16_224.fb_in1k",
    "dinov2": "vit_small_patch14_reg4_dinov2.lvd142m",
    "dinov3": "vit_small_patch16_dinov3.lvd1689m",
}
TOWER = {
    **{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 80, "patch_size": 8},
}
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}


def encoded(size):
    file = io.BytesIO()
    PIL.Image.fromarray(photograph(*size)).save(file, "jpeg", quality=92)
    return file.getvalue()


@pytest.fixture(scope="module", params=PHOTOGRAPHS, ids=str)
def jpeg(request):
    return encoded(request.param)


def opened(jpeg):
    return PIL.Image.open(io.BytesIO(jpeg)).convert("RGB")


def difference(theirs, normalization, model, jpeg):
    """Grey levels, before normalization. `theirs` is normalized, channels first."""
    mean, deviation = (np.reshape(values, (-1, 1, 1)) for values in normalization)
    levels = (255 * (theirs * deviation + mean)).transpose(1, 2, 0)
    (image,) = preprocess_files([jpeg], model.input_shape[1:3], model.image_spec)
    return np.abs(127.5 * (image + 1) - levels).max()


def check_pixels(theirs, normalization, model, jpeg):
    assert difference(theirs, normalization, model, jpeg) <= 1 + 1e-3


def check_logits(theirs, normalization, ours):
    """On equal pixels, each normalized in its own way."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, *SIZE, 3)).astype("uint8")
    mean, deviation = (np.array(values) for values in normalization)
    normalized = ((pixels / 255 - mean) / deviation).astype("float32").transpose(0, 3, 1, 2)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(normalized.copy()))
    expected = getattr(expected, "logits", expected).numpy()
    actual = keras.ops.convert_to_numpy(ours(keras_vit.preprocess(pixels)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)


@pytest.fixture(scope="module", params=PROCESSORS)
def directory(request, tmp_path_factory):
    """A classifier of transformers with the image processor of some model."""
    folder = tmp_path_factory.mktemp(request.param)
    config = transformers.ViTConfig(**TOWER, image_size=32, num_labels=10)
    randomise(transformers.ViTForImageClassification(config)).save_pretrained(folder)
    name, settings = PROCESSORS[request.param]
    getattr(transformers, name)(**settings).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("backend", ["", "Pil"])
def test_pixels_of_transformers(backend, directory, jpeg):
    recorded = json.loads((directory / "preprocessor_config.json").read_text())
    kind = recorded["image_processor_type"].removesuffix("Fast") + backend
    if kind == "DINOv3ViTImageProcessorPil":
        pytest.skip("transformers has no such processor")
    processor = getattr(transformers, kind).from_pretrained(directory)
    theirs = processor(opened(jpeg), return_tensors="np")["pixel_values"][0]
    normalization = recorded["image_mean"], recorded["image_std"]
    check_pixels(theirs, normalization, keras_vit.from_checkpoint(directory), jpeg)


# DINOv3's, which has no such class, needs torchvision even for its defaults.
@pytest.mark.parametrize("name", [name for name in PROCESSORS_OF_OURS if name != "DINOv3ViT"])
def test_defaults_of_classes(name):
    kind = getattr(transformers, f"{name}ImageProcessorPil")
    ours = PROCESSORS_OF_OURS[name]
    assert ours.resample == kind.resample
    assert bool(getattr(kind, "do_center_crop", False)) == ours.crops
    if ours.crops:
        assert kind.crop_size == {"height": CROP, "width": CROP}
    # SigLIP 2's has patches in place of a size.
    if getattr(kind, "size", None) is not None:
        assert set(kind.size.values()) == {ours.size}
        assert ("shortest_edge" in kind.size) == ours.keeps_aspect_ratio
    for found, values in zip(ours.normalization, (kind.image_mean, kind.image_std), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(found, 3), values)


def test_pixels_that_no_patch_reaches(jpeg, tmp_path):
    """As of google/siglip-so400m-patch14-384: images are resized, and the rest is not seen."""
    config = transformers.SiglipVisionConfig(**TOWER, image_size=38)
    theirs = randomise(transformers.SiglipVisionModel(config))
    theirs.save_pretrained(tmp_path)
    processor = transformers.SiglipImageProcessor(size={"height": 38, "width": 38})
    processor.save_pretrained(tmp_path)
    inputs = processor(opened(jpeg), return_tensors="pt")["pixel_values"]
    normalization = processor.image_mean, processor.image_std
    ours = keras_vit.from_checkpoint(tmp_path)
    check_pixels(inputs[0, :, :32, :32].numpy(), normalization, ours, jpeg)
    with torch.no_grad():
        expected = theirs(inputs).pooler_output.numpy()
    images = inputs[:, :, :32, :32].permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(keras.ops.convert_to_numpy(ours(images)), expected, atol=1e-4)
    keras_vit.save_checkpoint(ours, tmp_path / "ours", "huggingface")
    again = transformers.SiglipImageProcessor.from_pretrained(tmp_path / "ours")
    assert again.size == processor.size


def test_pixels_of_siglip2_for_free_sizes(tmp_path):
    """The grid of patches of a square photograph is that of the model."""
    jpeg = encoded((60, 60))
    config = transformers.Siglip2VisionConfig(**TOWER, num_patches=16)
    transformers.Siglip2VisionModel(config).save_pretrained(tmp_path)
    processor = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    processor.save_pretrained(tmp_path)
    patches = processor(opened(jpeg), return_tensors="np")["pixel_values"][0]
    pixels = patches.reshape(4, 4, 8, 8, 3).transpose(4, 0, 2, 1, 3).reshape(3, *SIZE)
    check_pixels(pixels, ((0.5,), (0.5,)), keras_vit.from_checkpoint(tmp_path), jpeg)


def test_weights_of_transformers(directory, tmp_path):
    theirs = transformers.ViTForImageClassification.from_pretrained(directory).eval()
    recorded = json.loads((directory / "preprocessor_config.json").read_text())
    ours = keras_vit.from_checkpoint(directory)
    check_logits(theirs, (recorded["image_mean"], recorded["image_std"]), ours)
    keras_vit.save_checkpoint(ours, tmp_path, format="huggingface")
    written = json.loads((tmp_path / "preprocessor_config.json").read_text())
    for name in ("image_mean", "image_std", "resample", "size", "do_center_crop"):
        assert written.get(name) == recorded.get(name), name


@pytest.fixture(scope="module", params=TIMM)
def timm_directory(request, timm, tmp_path_factory):
    architecture = TIMM[request.param].split(".")[0]
    theirs = randomise(timm.create_model(architecture, **SMALL, num_classes=10))
    published = timm.get_pretrained_cfg(TIMM[request.param])
    names = ("mean", "std", "interpolation", "crop_pct", "crop_mode")
    settings = {name: getattr(published, name) for name in names}
    theirs.pretrained_cfg = {**theirs.pretrained_cfg, **settings, "input_size": (3, *SIZE)}
    folder = tmp_path_factory.mktemp(request.param)
    timm.models.save_for_hf(theirs, folder, safe_serialization=True)
    return folder, theirs


def transform_of(timm, model):
    return timm.data.create_transform(**timm.data.resolve_model_data_config(model))


def normalization_of(model):
    return model.pretrained_cfg["mean"], model.pretrained_cfg["std"]


def test_pixels_of_timm(timm, timm_directory, jpeg):
    folder, model = timm_directory
    theirs = transform_of(timm, model)(opened(jpeg)).numpy()
    check_pixels(theirs, normalization_of(model), keras_vit.from_checkpoint(folder), jpeg)


def test_weights_of_timm(timm, timm_directory, tmp_path):
    folder, theirs = timm_directory
    ours = keras_vit.from_checkpoint(folder)
    check_logits(theirs, normalization_of(theirs), ours)
    keras_vit.save_checkpoint(ours, tmp_path, format="timm")
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    for name in ("mean", "std", "interpolation", "crop_pct", "crop_mode"):
        expected = theirs.pretrained_cfg[name]
        written = again.pretrained_cfg[name]
        assert written == (list(expected) if isinstance(expected, tuple) else expected), name


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize_mode", ["shortest", "squash"])
def test_pixels_of_open_clip(resize_mode, interpolation, jpeg, tmp_path):
    settings = {"resize_mode": resize_mode, "interpolation": interpolation}
    shutil.copytree(REFERENCE / "open_clip_vit", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["preprocess_cfg"] = settings
    path.write_text(json.dumps(config))
    transform = open_clip.image_transform(SIZE[0], is_train=False, **settings)
    normalization = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    theirs = transform(opened(jpeg)).numpy()
    check_pixels(theirs, normalization, keras_vit.from_checkpoint(tmp_path), jpeg)


def pixels_of(format, folder, jpeg, timm):
    """The pixels of a photograph, by the project that a directory is written for."""
    if format == "timm":
        model = timm.create_model(f"local-dir:{folder}", pretrained=True)
        return transform_of(timm, model)(opened(jpeg)).numpy(), normalization_of(model)
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    values = processor(opened(jpeg), return_tensors="np")["pixel_values"][0]
    return values, (processor.image_mean, processor.image_std)


def small_classifier(image_size):
    return keras_vit.vision_transformer(
        **{"patch_size": 8, "embedding_dim": 48, "depth": 2, "num_heads": 4, "mlp_dim": 80},
        **{"activation": "gelu", "epsilon": 1e-12, "num_classes": 10, "image_size": image_size},
    )


ANTIALIASED = {"interpolation": "bicubic", "antialias": True}
CENTER = {**ANTIALIASED, "crop_share": 0.875, "keeps_aspect_ratio": True}
RESIZINGS = {
    "paper": ImageSpec(),
    "squash": ImageSpec(**ANTIALIASED),
    "squash and crop": ImageSpec(**ANTIALIASED, crop_share=0.875),
    "squash and crop, 3 pixels": ImageSpec(**ANTIALIASED, crop_share=0.9),
    "timm": ImageSpec(**CENTER, rounds_offset=True),
    "transformers": ImageSpec(**CENTER),
}


@pytest.mark.parametrize("name", RESIZINGS)
@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_a_format_has_the_pixels_of_the_model_or_a_warning(format, name, timm, tmp_path, caplog):
    model = small_classifier(32)
    model.image_spec = RESIZINGS[name]
    keras_vit.save_checkpoint(model, tmp_path, format)
    is_told = "how this model's images are resized" in caplog.text
    differences = []
    # A wide one whose margins left and right are 5.5 pixels, and others.
    for size in [(72, 94), *PHOTOGRAPHS]:
        photo = encoded(size)
        pixels = pixels_of(format, tmp_path, photo, timm)
        differences.append(difference(*pixels, model, photo))
    assert (max(differences) > 1 + 1e-3) == is_told, differences


@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_a_crop_that_is_not_square(format, timm, jpeg, tmp_path, caplog):
    """transformers would add black borders to it where a smaller side has a length."""
    model = small_classifier((64, 32))
    model.image_spec = ImageSpec(**CENTER, rounds_offset=format == "timm")
    keras_vit.save_checkpoint(model, tmp_path, format)
    pixels, normalization = pixels_of(format, tmp_path, jpeg, timm)
    assert ("keeps_aspect_ratio=True becomes False" in caplog.text) == (format == "huggingface")
    again = keras_vit.from_checkpoint(tmp_path)
    assert difference(pixels, normalization, again, jpeg) <= 1 + 1e-3
    if format == "timm":
        assert difference(pixels, normalization, model, jpeg) <= 1 + 1e-3
