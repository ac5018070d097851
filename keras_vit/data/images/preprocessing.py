"""Settings of preprocessing and augmentation, and published presets with names.

This module imports neither Keras nor TensorFlow.
"""

import dataclasses
import logging
from typing import Any

from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec

# The greatest magnitude of RandAugment in arXiv 1909.13719. In big_vision, 10 is full scale, but
# AugReg uses magnitudes of up to 20, which change images more.
MAX_MAGNITUDE = 30


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The augmentation of training images after the crop and the flip.

    Args:
        layers: number of operations of RandAugment per image; 0 for none.
        magnitude: magnitude of RandAugment, from 0 to 30; 10 is full scale in big_vision.
        mixup: parameter of the Beta distribution from which MixUp draws the share of the second
            image; 0 for no MixUp.
        cutmix: the same parameter of CutMix, which pastes a rectangle of another image.
        erasing: share of the images in which a rectangle is erased (Random Erasing).
        layer: a Keras or keras-cv layer that changes an image with values in [0, 255], after the
            other operations on single images, such as `keras.layers.RandomRotation(0.1)`.

    Raises:
        ValueError: if a value is out of range.
    """

    layers: int = 0
    magnitude: float = 0
    mixup: float = 0
    cutmix: float = 0
    erasing: float = 0
    layer: Any = None

    def __post_init__(self):
        rules = {
            "layers": (self.layers >= 0 and self.layers == int(self.layers), "a whole number"),
            "magnitude": (0 <= self.magnitude <= MAX_MAGNITUDE, f"from 0 to {MAX_MAGNITUDE}"),
            "mixup": (self.mixup >= 0, "at least 0"),
            "cutmix": (self.cutmix >= 0, "at least 0"),
            "erasing": (0 <= self.erasing <= 1, "from 0 to 1"),
        }
        for name, (is_right, rule) in rules.items():
            if not is_right:
                raise ValueError(f"`{name}` must be {rule}. Received: {name}={getattr(self, name)}")

    @property
    def mixes(self):
        """Whether images are mixed, so that labels are soft labels."""
        return self.mixup > 0 or self.cutmix > 0


# Section 3.4 of "How to train your ViT?" (arXiv 2106.10270), `configs/vit_i21k.py` of big_vision.
# `light1` changes images strongly although its magnitude is 0: then Posterize keeps one bit,
# Solarize inverts all values, and Color, Contrast and Brightness have the factor 0.1. Some
# operations, such as Equalize, have no magnitude. `light0` occurs in the names of published files,
# but its settings are not published.
AUGMENTATIONS = {
    "none": Augmentation(),
    "light0": Augmentation(),
    "light1": Augmentation(layers=2, magnitude=0),
    "light2": Augmentation(layers=2, magnitude=10, mixup=0.2),
    "medium1": Augmentation(layers=2, magnitude=15, mixup=0.2),
    "medium2": Augmentation(layers=2, magnitude=15, mixup=0.5),
    "strong1": Augmentation(layers=2, magnitude=20, mixup=0.5),
    "strong2": Augmentation(layers=2, magnitude=20, mixup=0.8),
    # `bit_hyperrule.py` of big_transfer, for 20,000 images or more.
    "bit": Augmentation(mixup=0.1),
    # Function matching, `configs/proj/distill/` of big_vision.
    "mixup": Augmentation(mixup=1.0),
}


def find_augmentation(augmentation):
    """Return the `Augmentation` of a name, or with a given layer, or the given `Augmentation`."""
    if isinstance(augmentation, Augmentation):
        return augmentation
    if callable(augmentation):
        return Augmentation(layer=augmentation)
    if augmentation not in AUGMENTATIONS:
        raise ValueError(
            f"`augmentation` must be one of {', '.join(AUGMENTATIONS)}, an `Augmentation`, or a "
            "Keras layer. "
            f"Received: augmentation={augmentation!r}"
        )
    return AUGMENTATIONS[augmentation]


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The operations that turn an image file into the input of a model.

    The image is decoded to RGB, cropped, resized to `image_size` (bilinear, half-pixel centers, not
    antialiased), flipped, augmented and scaled to [-1, 1]. By default, the whole image is resized
    without keeping its aspect ratio.

    Args:
        upright: whether to turn photographs by their EXIF orientation.
        min_crop_area: smallest share of an image's area in a random crop; `None` for no crop.
        random_crop_from: side of the square to which images are resized before a random crop of
            `image_size`, at least `image_size`, in pixels; `None` for no such crop.
        central_crop_from: length to which the smaller side of images is resized before a central
            crop of `image_size`, at least `image_size`, in pixels; `None` for no such crop.
        image_spec: a `keras_vit.core.image_spec.ImageSpec`, such as `model.image_spec`: the
            channels and the range of values, and how images are resized if there is no crop.
        flip: whether to flip images left and right at random; `"always"` flips all of them.
        augmentation: a name of `keras_vit.data.AUGMENTATIONS`, a `keras_vit.data.Augmentation`, or
            a Keras or keras-cv layer, its only operation.
        one_hot: whether to turn labels into one-hot vectors; if the augmentation mixes images,
            labels always become vectors.

    Raises:
        ValueError: if a value is out of range or more than one crop is given.

    Example:
    >>> keras_vit.data.Preprocessing(min_crop_area=0.3, augmentation="light1").augmentation.layers
    2
    """

    upright: bool = False
    min_crop_area: float | None = None
    random_crop_from: int | None = None
    central_crop_from: int | None = None
    image_spec: ImageSpec = WHOLE_IMAGE
    flip: bool | str = False
    augmentation: Any = AUGMENTATIONS["none"]
    one_hot: bool = False

    def __post_init__(self):
        object.__setattr__(self, "augmentation", find_augmentation(self.augmentation))
        if self.min_crop_area is not None and not 0 < self.min_crop_area <= 1:
            raise ValueError(
                "`min_crop_area` must be greater than 0 and at most 1. "
                f"Received: min_crop_area={self.min_crop_area!r}"
            )
        if self.flip not in (True, False, "always"):
            raise ValueError(
                f"`flip` must be True, False or 'always'. Received: flip={self.flip!r}"
            )
        crops = ("min_crop_area", "random_crop_from", "central_crop_from")
        given = {name: getattr(self, name) for name in crops if getattr(self, name) is not None}
        if len(given) > 1:
            raise ValueError(f"At most one of {', '.join(crops)} can be given. Received: {given}")
        if given and self.image_spec != self.image_spec.of_whole_image():
            raise ValueError(
                "`image_spec` must not be given with a crop, which resizes images in its own way. "
                f"Received: {given}, image_spec={self.image_spec}"
            )
        if self.augmentation.layers and self.image_spec.channels != 3:
            raise ValueError(
                "`augmentation` must not have RandAugment (`layers`), whose operations on colors "
                f"need three channels. Received: {self.augmentation}, with images of "
                f"{self.image_spec.channels} channels"
            )


@dataclasses.dataclass(frozen=True)
class Preset:
    """A published way to prepare images.

    Args:
        training: the `Preprocessing` of training images, or a dictionary with a `Preprocessing` for
            each published image size.
        evaluation: the same for evaluation images.
        source: repository and files that contain the settings.
    """

    training: Preprocessing | dict[int, Preprocessing]
    evaluation: Preprocessing | dict[int, Preprocessing]
    source: str


# Settings that may change images at random.
RANDOM = ("min_crop_area", "random_crop_from", "flip", "augmentation")
_CROP_AND_FLIP = Preprocessing(min_crop_area=0.05, flip=True)
PRESETS = {
    "original": Preset(_CROP_AND_FLIP, Preprocessing(), "vision_transformer, input_pipeline.py"),
    "big_vision": Preset(
        _CROP_AND_FLIP,
        {224: Preprocessing(central_crop_from=256), 384: Preprocessing(central_crop_from=448)},
        "big_vision, configs/vit_i1k.py and configs/transfer.py",
    ),
    "hyper_rule": Preset(
        {
            128: Preprocessing(random_crop_from=160, flip="always"),
            480: Preprocessing(random_crop_from=512, flip="always"),
        },
        Preprocessing(),
        "big_transfer, bit_hyperrule.py and input_pipeline_tf2_or_jax.py",
    ),
}


def find_preprocessing(preprocessing, training, image_size, **changes):
    """Return the `Preprocessing` for a value of the argument `preprocessing` of `load`.

    `changes` replace fields of the result. A warning is logged if images would be changed at random
    although `training` is false.

    Raises `ValueError` if no preset has this name, or the preset has no settings for the image
    size.
    """
    result = dataclasses.replace(_find(preprocessing, training, image_size), **changes)
    if not training and (names := [name for name in RANDOM if _is_random(getattr(result, name))]):
        logging.getLogger("keras_vit").warning(
            "`%s` changes images at random, though `training=True` is not given: results will vary",
            "`, `".join(names),
        )
    return result


def _is_random(value):
    if isinstance(value, Augmentation):
        return bool(value.layers or value.mixes or value.erasing or value.layer is not None)
    return value not in (None, False, "always")


def _find(preprocessing, training, image_size):
    if preprocessing is None or isinstance(preprocessing, Preprocessing):
        return preprocessing or Preprocessing()
    preset = PRESETS.get(preprocessing) if isinstance(preprocessing, str) else None
    if preset is None:
        raise ValueError(
            f"`preprocessing` must be one of {', '.join(PRESETS)}, or a `Preprocessing`. "
            f"Received: preprocessing={preprocessing!r}"
        )
    by_size = preset.training if training else preset.evaluation
    if isinstance(by_size, Preprocessing):
        return by_size
    height, width = image_size if isinstance(image_size, (tuple, list)) else 2 * (image_size,)
    if height != width or height not in by_size:
        raise ValueError(
            f"`preprocessing={preprocessing!r}` is published for images of "
            f"{' and '.join(map(str, by_size))} pixels; for other sizes, give a `Preprocessing`. "
            f"Received: image_size={image_size!r}"
        )
    return by_size[height]
