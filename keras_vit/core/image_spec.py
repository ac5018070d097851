"""How a picture becomes the array that a model takes."""

import dataclasses

import numpy as np

from keras_vit.core.arguments import check_choice, check_integer

# Pillow's limit (`Image.MAX_IMAGE_PIXELS`), a quarter of a gigabyte of RGB pixels. A malicious file
# of a few kilobytes can expand to a thousand times as much (a decompression bomb).
MAX_PIXELS = 89_478_485
# Greatest absolute value that is accepted in a normalized image. Images for our models are in
# [-1, 1]; images normalized with ImageNet's statistics are in about [-2.7, 2.7].
MAX_NORMALIZED = 10
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """How images were resized, cropped and normalized for the evaluation of a trained model.

    By default, as in the ViT paper, the whole image is resized bilinearly with half-pixel centers,
    without antialiasing, and without keeping the aspect ratio.

    Args:
        interpolation: `"bilinear"`, `"bicubic"` or `"lanczos"`.
        antialias: whether to resize with the antialiasing filter of Pillow before version 13: along
            rows, then along columns, rounding the results of each to integers. JPEGs are then
            decoded to the same pixels as by Pillow.
        crop_share: length of the center crop divided by the length of the resized image, greater
            than 0; 1 for no crop.
        keeps_aspect_ratio: whether the smaller side is resized to the length before the crop, and
            the other side in proportion; otherwise both sides are resized to that length.
        rounds_offset: whether the position of the crop is rounded half to even, as in torchvision;
            otherwise it is rounded down, as in transformers.
        cut_off: number of rows at the bottom and of columns at the right to cut off after the crop,
            because the original model's patches do not cover them, as in SigLIP with 384 pixels and
            patches of 14. They are only cut off at the model's own image size: see `at`.
        mean: mean with which the training images were normalized, for pixels in [0, 1]: a tuple of
            one number, or of one per channel. The patch projection includes this normalization, so
            that the model takes images in [-1, 1]; `keras_vit.save_checkpoint` removes it again.
        deviation: standard deviation of the same normalization, a tuple like `mean`.
        channels: number of channels of an image.
        value_range: the stored values that become -1 and 1; values outside are clipped. `"dtype"`
            stands for 0 and the greatest integer of the stored type (65,535 for 16 bits), and
            `(low, high)` for two numbers, or for two tuples of one number or one per channel.
            `None` reduces integers to their upper 8 bits, which become -1 to 1.

    Raises:
        ValueError: if the interpolation is unknown, or the channels or the range are wrong.

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
    channels: int = 3
    value_range: str | tuple | None = None

    def __post_init__(self):
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_integer("channels", self.channels, 1)
        if self.value_range not in (None, "dtype"):
            is_text = isinstance(self.value_range, str)
            pair = np.array([] if is_text else self.value_range, "float64")
            is_pair = pair.shape in ((2,), (2, 1), (2, self.channels)) and np.isfinite(pair).all()
            # Pixels are computed in float32.
            if not is_pair or not (np.diff(pair.astype("float32"), axis=0) > 0).all():
                raise ValueError(
                    "`value_range` must be None, 'dtype' or a pair `(low, high)` of numbers, or of "
                    "tuples of one number per channel, with low < high; "
                    "`keras_vit.data.measure_range` measures it. "
                    f"Received: value_range={self.value_range!r}, channels={self.channels}"
                )
            pair = map(float if pair.ndim == 1 else tuple, pair.tolist())
            object.__setattr__(self, "value_range", tuple(pair))
        # JSON returns lists instead of tuples.
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

    @property
    def has_rgb_bytes(self):
        """Whether images have three channels of 8 bits."""
        return self.channels == 3 and self.value_range is None

    def of_whole_image(self):
        """Return the same normalization and pixels with the resizing of the ViT paper."""
        names = ("mean", "deviation", "channels", "value_range")
        return ImageSpec(**{name: getattr(self, name) for name in names})

    def with_channels(self, channels):
        """Return the spec for another number of channels.

        The mean, the deviation and the range of each channel are repeated and cut, as timm does
        with kernels. One channel has their averages.

        Example:
        >>> from keras_vit.core.image_spec import ImageSpec
        >>> ImageSpec(mean=(0.4, 0.5, 0.6)).with_channels(4).mean
        (0.4, 0.5, 0.6, 0.4)
        """

        def adapted(values):
            if len(values) > 1 and channels == 1:
                return (sum(values) / len(values),)
            return values if len(values) == 1 else tuple(np.resize(values, channels).tolist())

        changes = {name: adapted(getattr(self, name)) for name in ("mean", "deviation")}
        if np.ndim(self.value_range) == 2:
            changes["value_range"] = tuple(map(adapted, self.value_range))
        return dataclasses.replace(self, channels=channels, **changes)

    def full_size(self, image_size):
        """Return the size of resized images before `cut_off` reduces it to `image_size`."""
        return tuple(pixels + cut for pixels, cut in zip(image_size, self.cut_off, strict=True))

    def at(self, image_size, model_size):
        """Return the spec for an image size, without `cut_off` if it is not the model's size."""
        is_equal = tuple(image_size) == tuple(model_size)
        return self if is_equal else dataclasses.replace(self, cut_off=(0, 0))

    def length_before_crop(self, length):
        """Return the length to resize to, rounded down, so that the crop has `length` pixels."""
        # Floating-point errors must not count: 224 / (224 / 257) may be a little less than 257.
        return int(length / self.crop_share + 1e-6)

    def differences(self, other, image_size):
        """List how `other` differs in the range, resizing and cropping of images of this size.

        Example:
        >>> from keras_vit.core.image_spec import ImageSpec
        >>> ImageSpec("bicubic").differences(ImageSpec(antialias=True), (224, 224))
        ["interpolation='bicubic' becomes 'bilinear'", 'antialias=False becomes True']
        """

        def compared(spec):
            values = dataclasses.asdict(spec)
            del values["crop_share"], values["mean"], values["deviation"], values["channels"]
            values["size before the crop"] = [*map(spec.length_before_crop, image_size)]
            if not spec.keeps_aspect_ratio:
                # All images have the same size before the crop, so rounding may not matter.
                sizes = zip(values["size before the crop"], image_size, strict=True)
                halves = [(before - length) / 2 for before, length in sizes]
                values["rounds_offset"] &= any(round(half) != int(half) for half in halves)
            return values

        own, other = compared(self), compared(other)
        return [f"{n}={own[n]!r} becomes {other[n]!r}" for n in own if own[n] != other[n]]


# The default: images are resized as in the ViT paper, and not cropped.
WHOLE_IMAGE = ImageSpec()
