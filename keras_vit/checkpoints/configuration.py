"""Read and write the JSON files next to weights: class names, and how images are prepared."""

import collections
import dataclasses
import json
import math
import re

from keras_vit.checkpoints.architecture import grid_of, logger, per_channel
from keras_vit.core.arguments import is_integer
from keras_vit.core.image_spec import ImageSpec
from keras_vit.core.text import check_class_names

# Names of the files in a directory of weights.
MODEL = "model.safetensors"
SHARD_INDEX = f"{MODEL}.index.json"
TF_MODEL = "tf_model.h5"
PICKLED_MODEL = "pytorch_model.bin"
PICKLED_INDEX = f"{PICKLED_MODEL}.index.json"
# open_clip's names of files begin with "open_clip_". They may be next to files of transformers.
OPEN_CLIP_PREFIX = "open_clip_"
OPEN_CLIP_MODEL = f"{OPEN_CLIP_PREFIX}{MODEL}"
OPEN_CLIP_PICKLED_MODEL = f"{OPEN_CLIP_PREFIX}{PICKLED_MODEL}"
OPEN_CLIP_CONFIG = f"{OPEN_CLIP_PREFIX}config.json"
# Suffixes of files that `torch.save` writes.
TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt")
PREPROCESSOR = "preprocessor_config.json"
CONFIGURATION = ("config.json", PREPROCESSOR)
# transformers 5 writes this file instead of `PREPROCESSOR` if the model also processes texts.
PROCESSOR = "processor_config.json"
JSON_FILES = (*CONFIGURATION, PROCESSOR, OPEN_CLIP_CONFIG)


def has_configuration(path):
    """Return whether JSON files may be next to a file of weights of this name."""
    suffixes = (".safetensors", ".h5", *TORCH_SUFFIXES)
    return path.suffix in suffixes and not path.name.endswith(".weights.h5")


def read_configuration(path):
    """Return the contents of the `config.json` and the image processor's settings for weights.

    `path` is the path of a file of weights or of its directory. Each is `{}` if there is no such
    file. As in transformers, a `processor_config.json` has precedence over a
    `preprocessor_config.json`. An `open_clip_config.json` is read if there is no `config.json`, and
    has precedence for files with open_clip's names.
    """
    directory = path if path.is_dir() else path.parent
    names = ["config.json", OPEN_CLIP_CONFIG]
    if path.name.startswith(OPEN_CLIP_PREFIX) and path != directory:
        names.reverse()
    config = read_json(directory / names[0]) or read_json(directory / names[1])
    processor = read_json(directory / PROCESSOR)
    of_config = ("pretrained_cfg", "model_args", "model_cfg", "preprocess_cfg")
    objects = *((config, name) for name in of_config), (processor, "image_processor")
    for contents, name in objects:
        if not isinstance(contents.get(name) or {}, dict):
            raise ValueError(
                f"`{name}` of {str(directory)!r} must be a JSON object. "
                f"Received: {name}={contents[name]!r:.80}"
            )
    return config, processor.get("image_processor") or read_json(directory / PREPROCESSOR)


def read_json(path):
    """Return the JSON object in a file, or `{}` if there is no file."""
    if not path.is_file():
        return {}
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    # Deeply nested JSON raises a RecursionError.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents


def valid_class_names(names, num_classes, path):
    """Return the recorded class names of the weights in `path` as a tuple, or `None`.

    Log a warning and return `None` if the names are not valid for `num_classes` classes. If several
    classes share a name, as in ImageNet, the number of the class is appended to the name.
    """
    if not names or not num_classes:
        return None
    try:
        subject = f"The class names in the config.json of {path}"
        return check_class_names(_numbered(names), subject, num_classes)
    except ValueError as error:
        logger.warning("names of classes are ignored: %s", error)
        return None


def _numbered(names):
    """Append the number of the class to each name that several classes share."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    counts = collections.Counter(map(str.casefold, names))
    return [
        name if counts[name.casefold()] == 1 else f"{name} ({index})"
        for index, name in enumerate(names)
    ]


# Mean and standard deviation of pixels in [0, 1], for ImageNet and for OpenAI's CLIP.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OPENAI = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Names of mean and standard deviation in files of transformers, and of timm.
NAMES_OF_NORMALIZATION = ("image_mean", "mean"), ("image_std", "std")
# Default side of the crop in pixels, for all classes of image processors.
CROP = 224
# Pillow's filters by their numbers in files of transformers.
FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}


@dataclasses.dataclass(frozen=True)
class Processor:
    """Default settings of a class of image processors in transformers.

    Args:
        resample: number of Pillow's filter.
        keeps_aspect_ratio: whether a size that is a single number is the smaller side's length.
        crops: whether the center of the resized image is cropped.
        normalization: mean and standard deviation of pixels in [0, 1].
        size: side of the resized images, before the crop.
    """

    resample: int = 3
    keeps_aspect_ratio: bool = False
    crops: bool = False
    normalization: tuple = ((0.5,), (0.5,))
    size: int = 224


# Suffixes of `image_processor_type`, and of `feature_extractor_type` in older files.
ENDINGS = re.compile("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$")
# Default settings by the name of the class, without the suffix.
PROCESSORS = {
    "ViT": Processor(resample=2),
    "DINOv3ViT": Processor(resample=2, normalization=IMAGENET),
    "DeiT": Processor(crops=True, size=256),
    "CLIP": Processor(keeps_aspect_ratio=True, crops=True, normalization=OPENAI),
    "Bit": Processor(keeps_aspect_ratio=True, crops=True, normalization=OPENAI),
    "Siglip": Processor(),
    "Siglip2": Processor(resample=2),
}
# Classes by prefix of `model_type`, for files that record no class, as in `AutoImageProcessor`.
PROCESSORS_OF_MODELS = {
    "deit": "DeiT",
    "clip": "CLIP",
    "dinov2": "Bit",
    "dinov3": "DINOv3ViT",
    "siglip": "Siglip",
    "siglip2": "Siglip2",
}
# Settings that a file must record if its class is not in `PROCESSORS`.
REQUIRED = {"size", "resample", "image_mean", "image_std", "do_center_crop"}
# Classes whose crop is not supported.
UNSUPPORTED = ("ConvNext", "Levit")


def recorded_images(config, preprocessor, path):
    """Return the `ImageSpec` that is recorded next to weights, or `None`.

    Args:
        config: contents of the `config.json`.
        preprocessor: contents of the `preprocessor_config.json`.
        path: path of the weights, for error messages.
    """
    timm = _settings_in_config(config)
    recorded = timm or preprocessor
    if not recorded:
        return None
    default = None if timm else _defaults_of(preprocessor, config, path)
    if not timm and preprocessor.get("do_resize") is False:
        text = "%s: `do_resize` is false: images of other sizes are resized bilinearly"
        logger.warning(text, path)
    try:
        usual = IMAGENET if timm else default.normalization
        mean, deviation = _normalization(recorded, usual, path)
        fields = _resizing_of_timm(timm) if timm else _resizing_of_transformers(recorded, default)
        return ImageSpec(**fields, mean=mean, deviation=deviation)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            "The JSON files of weights must record how to normalize images, how to resize them (by "
            "a bilinear, bicubic or lanczos filter) and how to crop their middle; to replace "
            f"another filter, edit `resample`. Received: {str(path)!r} ({error})"
        ) from error


def _normalization(recorded, defaults, path):
    """Return mean and standard deviation of pixels in [0, 1], as one number or one per channel."""
    # A setting with the value null counts as not recorded.
    normalization = [
        next((recorded[name] for name in names if recorded.get(name) is not None), default)
        for names, default in zip(NAMES_OF_NORMALIZATION, defaults, strict=True)
    ]
    is_scaling = recorded.get("do_rescale") is not False
    if not is_scaling:
        logger.warning(
            "%s: `do_rescale` is false: pixels are assumed to be in [0, 1] before normalization",
            path,
        )
    factor = (is_scaling and recorded.get("rescale_factor")) or 1 / 255
    if recorded.get("do_normalize") is False:
        normalization = [0], [1]
    # Convert to pixels in [0, 1]. Files record fewer digits than the 12 to which this rounds.
    mean, deviation = (
        values if isinstance(values, (list, tuple)) else (values,) for values in normalization
    )
    if factor <= 0 or min(deviation) <= 0:
        raise ValueError(f"standard deviation {deviation} and factor {factor!r} of pixels")
    return tuple(
        tuple(round(value / (255 * factor), 12) for value in values) for values in (mean, deviation)
    )


def warn_of_unrecorded_images(path, assumed):
    """Warn that images are assumed to be prepared by the `ImageSpec` `assumed`."""
    logger.warning(
        "%s: no file records how images are prepared: mean and deviation default to %s and %s, "
        "and images are resized with%s antialiasing; if the model was trained otherwise, its "
        "logits are wrong",
        *(path, *assumed.normalization, "" if assumed.antialias else "out"),
    )


def warn_of_lost_preparation(config, preprocessor, path, image_spec, image_size, default):
    """Warn of the fields of a model's `ImageSpec` that the files next to weights do not record.

    The first three arguments are those of `recorded_images`. `default` is the `ImageSpec` of files
    of this layout that record nothing.
    """
    recorded = recorded_images(config, preprocessor, path) or default
    if config:
        # The `config.json` records the full image size, including the border that is cut off.
        recorded = dataclasses.replace(recorded, cut_off=image_spec.cut_off)
    if differences := image_spec.differences(recorded, image_size):
        logger.warning(
            "%s does not record how this model's images are resized, and its outputs for images of "
            "other sizes will differ: %s",
            path,
            ", ".join(differences),
        )


def preprocessor_of(options, image_spec):
    """Return the contents of a `preprocessor_config.json` for a model of these options."""
    height, width = options.image_size
    size = {"height": height, "width": width}
    before_crop = {name: image_spec.length_before_crop(length) for name, length in size.items()}
    # With `shortest_edge`, transformers would add borders to images that are not square.
    if image_spec.keeps_aspect_ratio and height == width:
        kind, before_crop = "Bit", {"shortest_edge": min(before_crop.values())}
    else:
        kind = "ViT" if image_spec.crop_share == 1 else "DeiT"
    crop = {"do_center_crop": True, "crop_size": size} if kind != "ViT" else {}
    return _preprocessor(kind, {"size": before_crop, **crop}, image_spec)


def naflex_preprocessor_of(options, image_spec):
    """Return the contents of a `preprocessor_config.json` of SigLIP 2 for any grid of patches."""
    patch_size = options.patch_size
    num_patches = math.prod(grid_of(options.image_size, patch_size))
    settings = {"patch_size": patch_size[0], "max_num_patches": num_patches}
    return _preprocessor("Siglip2", settings, image_spec)


def _preprocessor(kind, settings, image_spec):
    numbers = {name: number for number, name in FILTERS.items()}
    return {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": True,
        **settings,
        "resample": numbers[image_spec.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": per_channel(image_spec.mean, image_spec.channels),
        "image_std": per_channel(image_spec.deviation, image_spec.channels),
    }


def _settings_in_config(config):
    if "model_cfg" in config:
        return _settings_of_open_clip(config.get("preprocess_cfg") or {})
    # Older versions of timm wrote these settings at the top level, without `pretrained_cfg`.
    settings = config.get("pretrained_cfg") or (config if "architecture" in config else {})
    # A directory of timm may have a preprocessor_config.json instead of these settings.
    return settings if "mean" in settings or "interpolation" in settings else {}


def _settings_of_open_clip(recorded):
    """Return the settings of timm that prepare images as open_clip does."""
    mode = recorded.get("resize_mode") or "shortest"
    if mode not in ("shortest", "squash"):
        raise ValueError(
            "`resize_mode` of open_clip_config.json must be 'shortest' or 'squash'. "
            f"Received: resize_mode={mode!r}"
        )
    is_bilinear = recorded.get("interpolation") == "bilinear"
    return {
        "mean": recorded.get("mean") or OPENAI[0],
        "std": recorded.get("std") or OPENAI[1],
        "interpolation": "bilinear" if is_bilinear else "bicubic",
        "crop_mode": "center" if mode == "shortest" else mode,
        "crop_pct": 1.0,
    }


def _resizing_of_timm(settings):
    if "interpolation" not in settings:
        return {}
    mode = settings.get("crop_mode") or "center"
    if mode not in ("center", "squash"):
        raise ValueError(f"crop_mode={mode!r}")
    # The default of `resolve_data_config` in timm.
    share = settings.get("crop_pct") or 0.875
    return {
        "interpolation": settings["interpolation"],
        "antialias": True,
        "crop_share": share,
        "keeps_aspect_ratio": mode == "center",
        "rounds_offset": True,
    }


def _resizing_of_transformers(settings, default):
    if settings.get("do_resize") is False:
        return {}
    resample = settings.get("resample")
    filter = default.resample if resample is None else resample
    if filter not in FILTERS:
        raise ValueError(f"resample={filter!r}")
    # NaFlex files record `max_num_patches` and no size: the model's image size is used.
    if "max_num_patches" in settings and settings.get("size") is None:
        return {"interpolation": FILTERS[filter], "antialias": True}
    (height, width), crop, keeps_aspect_ratio = _sizes_of(settings, default)
    share = 1.0
    if crop is not None:
        rows, columns = crop
        # A crop larger than the image would add borders, and `ImageSpec` cannot describe a crop
        # with another aspect ratio. A difference of one pixel may be due to rounding.
        if rows > height or columns > width or abs(rows / height * width - columns) > 1:
            raise ValueError(f"size={(height, width)} and crop_size={crop}")
        share = rows / height
    return {
        "interpolation": FILTERS[filter],
        "antialias": True,
        "crop_share": share,
        "keeps_aspect_ratio": keeps_aspect_ratio,
    }


def processed_size(config, preprocessor, path):
    """Return the size of the images that an image processor returns, or `None` if sizes differ.

    The arguments are those of `recorded_images`.
    """
    is_resizing = preprocessor.get("do_resize") is not False
    if _settings_in_config(config) or not preprocessor.get("size") or not is_resizing:
        return None
    default = _defaults_of(preprocessor, config, path)
    size, crop, keeps_aspect_ratio = _sizes_of(preprocessor, default)
    fixed = crop or (None if keeps_aspect_ratio else size)
    return fixed if fixed and all(map(is_integer, fixed)) else None


def _sizes_of(settings, default):
    """Return the size before the crop, the crop or `None`, and whether the aspect ratio is kept.

    If the aspect ratio is kept, the size contains the length of the smaller side twice.
    """
    size = settings.get("size") or default.size
    before_crop, keeps_aspect_ratio = _lengths_of(size, default.keeps_aspect_ratio)
    if not settings.get("do_center_crop", default.crops):
        return before_crop, None, keeps_aspect_ratio
    crop, _ = _lengths_of(settings.get("crop_size") or CROP, keeps_aspect_ratio=False)
    return before_crop, crop, keeps_aspect_ratio


def _defaults_of(settings, config, path):
    """Return the `Processor` of the recorded class, or if there is none, of the `model_type`."""
    kind = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if not kind:
        model = str(config.get("model_type", ""))
        prefixes = [name for name in PROCESSORS_OF_MODELS if model.startswith(name)]
        return PROCESSORS[PROCESSORS_OF_MODELS[max(prefixes, key=len)] if prefixes else "ViT"]
    name = ENDINGS.sub("", str(kind))
    if name not in PROCESSORS and (REQUIRED - {*settings} or name in UNSUPPORTED):
        raise ValueError(
            f"The class of an image processor must be one of {', '.join(PROCESSORS)}, or another "
            f"(not {' or '.join(UNSUPPORTED)}) if its file records {', '.join(sorted(REQUIRED))}; "
            "remove the preprocessor_config.json to read only the weights. "
            f"Received: {kind!r} next to {str(path)!r}"
        )
    return PROCESSORS.get(name, Processor())


def _lengths_of(size, keeps_aspect_ratio):
    """Return `(height, width)` in pixels, and whether both are the length of the smaller side."""
    if isinstance(size, list):
        return tuple(size), False
    if not isinstance(size, dict):
        size = {"shortest_edge": size} if keeps_aspect_ratio else {"height": size, "width": size}
    smaller = size.get("shortest_edge")
    if smaller is None:
        return (size["height"], size["width"]), False
    return (smaller, smaller), True
