"""How a picture becomes the array that a model takes."""

import dataclasses

from keras_vit.core.arguments import check_choice

# Pillow's limit (`Image.MAX_IMAGE_PIXELS`): a quarter of a gigabyte of RGB. A file of a few
# kilobytes can claim a thousand times as much (a decompression bomb).
MAX_PIXELS = 89_478_485
# Normalized images range from -1 to 1 here, and from about -2.7 to 2.7 with ImageNet's statistics.
MAX_NORMALIZED = 10
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """How images were resized, cropped and normalized for the evaluation of a trained model.

    The default follows the ViT paper: the whole image is resized without keeping its aspect ratio,
    bilinear, with half-pixel centers, not antialiased.

    Args:
        interpolation: `"bilinear"`, `"bicubic"` or `"lanczos"`.
        antialias: whether to antialias as Pillow before version 13: the filter covers all pixels of
            an image that becomes smaller, first of each row, then of each column, and the results
            are rounded to integers. JPEGs are then decoded accurately, too.
        crop_share: share of the resized image's sides that the center crop keeps, greater than 0; 1
            for no crop.
        keeps_aspect_ratio: whether only the smaller side is resized to the length before the crop;
            otherwise both sides are.
        rounds_offset: whether the first row and column of the crop are rounded half to even, as in
            torchvision; otherwise they are rounded down, as in transformers.
        cut_off: rows at the bottom and columns at the right that the patches of the original model
            do not reach. They are cut off last, as in SigLIP with 384 pixels and patches of 14.
            They belong to one image size: see `at`.
        mean: mean of pixels in [0, 1], one number or one per channel, with which the training
            images were normalized. The patch projection contains mean and deviation, so that the
            model takes images in [-1, 1]; `keras_vit.save_checkpoint` takes them out again.
        deviation: standard deviation of these pixels, like `mean`.

    Raises:
        ValueError: if the interpolation is unknown.

    Example:
    >>> from keras_vit.core.image_spec import ImageSpec
    >>> ImageSpec("bicubic", antialias=True, crop_share=224 / 256).length_before_crop(384)
    438
    """

    interpolation: str = "bilinear"
    antialias: bool = False
    crop_share: float = 1.0
    keeps_aspect_ratio: bool = False
    rounds_offset: bool = False
    cut_off: tuple[int, int] = (0, 0)
    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        # JSON has lists.
        for name in ("cut_off", "mean", "deviation"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def normalization(self):
        """The mean and the standard deviation."""
        return self.mean, self.deviation

    @property
    def is_centered(self):
        """Whether the weights were trained on pixels in [-1, 1]."""
        return {*self.mean, *self.deviation} == {0.5}

    def of_whole_image(self):
        """Return the same normalization with the resizing of the ViT paper."""
        return ImageSpec(mean=self.mean, deviation=self.deviation)

    def full_size(self, image_size):
        """Return the size of resized images before `cut_off` reduces it to `image_size`."""
        return tuple(pixels + cut for pixels, cut in zip(image_size, self.cut_off, strict=True))

    def at(self, image_size, own_size):
        """Return the spec for an image size; only at the model's own size something is cut off."""
        is_own = tuple(image_size) == tuple(own_size)
        return self if is_own else dataclasses.replace(self, cut_off=(0, 0))

    def length_before_crop(self, length):
        """Return the length, rounded down, of which a center crop keeps `length` pixels."""
        # The share 224 / 257 of 257 may be a little less than 224.
        return int(length / self.crop_share + 1e-6)

    def differences(self, other, image_size):
        """Describe how `other` resizes and crops images of this size differently.

        Example:
        >>> from keras_vit.core.image_spec import ImageSpec
        >>> ImageSpec("bicubic").differences(ImageSpec(antialias=True), (224, 224))
        ["interpolation='bicubic' becomes 'bilinear'", 'antialias=False becomes True']
        """

        def compared(spec):
            values = dataclasses.asdict(spec)
            del values["crop_share"], values["mean"], values["deviation"]
            values["size before the crop"] = [*map(spec.length_before_crop, image_size)]
            if not spec.keeps_aspect_ratio:
                # All images have one size before the crop: does rounding move that crop?
                sizes = zip(values["size before the crop"], image_size, strict=True)
                halves = [(before - length) / 2 for before, length in sizes]
                values["rounds_offset"] &= any(round(half) != int(half) for half in halves)
            return values

        own, other = compared(self), compared(other)
        return [f"{n}={own[n]!r} becomes {other[n]!r}" for n in own if own[n] != other[n]]


# As in the ViT paper.
WHOLE_IMAGE = ImageSpec()
