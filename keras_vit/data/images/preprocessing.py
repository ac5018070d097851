"""What is done to an image before a model takes it, and the published ways to do it by name."""

import dataclasses
import logging

from keras_vit.core.images import WHOLE_IMAGE, ImageSpec
from keras_vit.data.images.augmentations import AUGMENTATIONS, Augmentation, find_augmentation


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The operations between an image file and the input of a model, in the order of the arguments.

    The image is decoded to RGB, cropped, resized to `image_size` (bilinear, half-pixel centers, not
    antialiased), flipped, augmented and scaled to [-1, 1]. Without arguments the whole image is
    resized, its aspect ratio is not kept.

    Args:
        upright: whether to turn photographs as their EXIF orientation says.
        min_crop_area: smallest share of an image's area in a random crop; `None` for no crop.
        random_crop_from: side in pixels of the square to which images are resized before a random
            part of `image_size` is cut out, at least `image_size`; `None` for no such crop.
        central_crop_from: smaller side in pixels to which images are resized before the middle is
            cut out, at least `image_size`; `None` for no such crop.
        image_spec: how images are resized where none of these crops is given: a
            `keras_vit.core.images.ImageSpec`, such as `model.image_spec`.
        flip: whether to flip images left and right at random; `"always"` flips all of them.
        augmentation: a name of `keras_vit.data.AUGMENTATIONS` or a `keras_vit.data.Augmentation`.
        one_hot: whether labels are soft labels, as they always are where the augmentation mixes
            images.

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
    augmentation: Augmentation | str = AUGMENTATIONS["none"]
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
                "`image_spec` must not be given with a crop, which has its own. "
                f"Received: {given}, image_spec={self.image_spec}"
            )


@dataclasses.dataclass(frozen=True)
class Preset:
    """A published way to prepare images.

    Args:
        training: the `Preprocessing` of training images, or a dictionary to it from the image sizes
            it was published for.
        evaluation: the same for evaluation.
        source: file of the original that it was taken from.
    """

    training: Preprocessing | dict[int, Preprocessing]
    evaluation: Preprocessing | dict[int, Preprocessing]
    source: str


# Settings that may change an image in each pass.
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

    `changes` replace its fields. A warning is logged if images that are not for training would be
    changed at random.

    Raises `ValueError` if there is no such preset, or it was not published for the image size.
    """
    found = dataclasses.replace(_find(preprocessing, training, image_size), **changes)
    if not training and (names := [name for name in RANDOM if _is_random(getattr(found, name))]):
        logging.getLogger("keras_vit").warning(
            "`%s` changes images at random, though `training=True` is not given: results will vary",
            "`, `".join(names),
        )
    return found


def _is_random(value):
    if isinstance(value, Augmentation):
        return bool(value.layers or value.mixes or value.erasing)
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
    found = preset.training if training else preset.evaluation
    if isinstance(found, Preprocessing):
        return found
    height, width = image_size if isinstance(image_size, (tuple, list)) else 2 * (image_size,)
    if height != width or height not in found:
        raise ValueError(
            f"`preprocessing={preprocessing!r}` is published for images of "
            f"{' and '.join(map(str, found))} pixels; give a `Preprocessing` for others. "
            f"Received: image_size={image_size!r}"
        )
    return found[height]
