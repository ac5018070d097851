"""Images and masks for segmentation: find them in a folder, and decode and crop them together."""

import collections
import dataclasses
import io
import pathlib
import re

import numpy as np
import PIL.Image
import tensorflow as tf

from keras_vit.core.arguments import IGNORED
from keras_vit.core.text import name_some
from keras_vit.data.images.decoding import decode_function, explain
from keras_vit.data.images.geometry import ImageMaker, inception_crop_of, resize_image
from keras_vit.data.images.preprocessing import Preprocessing
from keras_vit.data.images.scaling import scale_pixels
from keras_vit.data.sources.folder import files_of_split, find_splits, id_of, list_images
from keras_vit.data.sources.source import SEPARATOR, from_arrays

IMAGES, MASKS, CLASSES = "images", "masks", "classes.txt"
# Pillow's modes in which a pixel is one number.
_MODES = ("1", "L", "P", "I", "I;16")


def masks(path, split, shard=(0, 1)):
    """Find the images of a split and their masks.

    The folder has `train/images/*.jpg`, `train/masks/*.png` with the same names, optionally
    `validation/` and `test/`, and `classes.txt`, whose first line is the name of the class of
    pixels with the value 0. If the folder has `images/` and `masks/` instead of folders of splits,
    the images are divided into splits by their names.

    Args:
        path: path of the folder.
        split: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source` whose payloads are pairs of paths, and whose labels are 0; ids are the paths of
        the images relative to the folder.

    Raises:
        ValueError: if the folder does not have this layout, or an image has no mask.
    """
    root = pathlib.Path(path).expanduser()
    names = (root / CLASSES).read_text("utf-8-sig").splitlines()
    if len(names) > IGNORED:
        raise ValueError(
            f"`{CLASSES}` must have at most {IGNORED} names: pixels with the value {IGNORED} have "
            f"no class. Received: {len(names)} names in {str(root)!r}"
        )
    present, undivided = find_splits(root), root / IMAGES
    if undivided.is_dir() and (present or find_splits(undivided)):
        raise ValueError(
            f"`masks:DIR` must have `{IMAGES}/` and `{MASKS}/` either in folders of splits or in "
            f"DIR itself. Received: {str(root)!r} with both"
        )
    present, pairs, left_out = present or {"train": root}, [], collections.Counter()
    for name, folder in present.items():
        images, reasons = list_images(folder / IMAGES)
        left_out += reasons
        by_folder = {id_of(folder / IMAGES, root): [id_of(image, root) for image in images]}
        (ids,) = files_of_split(root, present, name, by_folder, split).values()
        pairs += [(str(root / id), _mask_of(root / id, folder)) for id in ids]
    counts = collections.Counter(mask for _, mask in pairs)
    if wrong := [i for i, mask in pairs if counts[mask] > 1 or not pathlib.Path(mask).is_file()]:
        raise ValueError(
            f"Each image NAME.* of `masks:DIR` must have its own mask, `{MASKS}/NAME.png`. "
            f"Received: {len(wrong)} of {len(pairs)} images without one: {name_some(wrong)}"
        )
    return from_arrays(
        np.array([SEPARATOR.join(pair) for pair in pairs]),
        np.zeros(len(pairs), "int32"),
        names,
        find_id=lambda number: id_of(pairs[number][0], root),
        indices=slice(shard[0], None, shard[1]),
        read=_read,
        path_of=lambda number: pairs[number][0],
        left_out=left_out,
        samples_by_id=True,
        has_masks=True,
    )


def _read(payload):
    """Read an image and its mask, and return the bytes of both as one string."""
    image, mask = tf.unstack(tf.strings.split(payload, SEPARATOR), 2)
    return pack(tf.io.read_file(image), tf.io.read_file(mask))


def pack(image, mask):
    """Serialize the bytes of an image and of its mask as one string."""
    return tf.io.serialize_tensor(tf.stack([image, mask]))


def unpack(encoded):
    """Return the two strings that `pack` serialized."""
    return tf.unstack(tf.io.parse_tensor(encoded, tf.string), 2)


def _mask_of(image, folder):
    path = pathlib.Path(image).relative_to(folder / IMAGES)
    return str(folder / MASKS / path.with_suffix(".png"))


@dataclasses.dataclass(frozen=True)
class MaskMaker(ImageMaker):
    """Turn the bytes of images and masks into images whose fourth channel is the mask.

    An image and its mask are cropped and flipped together. The image is resized bilinearly, and the
    mask by nearest neighbor.

    Args:
        num_classes: number of classes.

    Raises:
        ValueError: as in `ImageMaker`, or if `preprocessing` sets fields other than `min_crop_area`
            and `flip`.
    """

    num_classes: int = 0

    def __post_init__(self):
        super().__post_init__()
        area, flip = self.preprocessing.min_crop_area, self.preprocessing.flip
        if self.preprocessing != Preprocessing(min_crop_area=area, flip=flip):
            raise ValueError(
                "For images with masks, only `min_crop_area` and `flip` can be set. "
                f"Received: {self.preprocessing}"
            )

    @property
    def shape(self):
        """Shape of an image with its mask."""
        return (*self.image_size, 4)

    def mixing(self):
        """Return a function that splits a batch into images and masks; masks become the labels."""
        return split_masks

    def make(self):
        """Return a function of the result of `pack` and a seed; it returns an image with a mask."""

        def make_image(encoded, seed):
            image = self.read(encoded, seed)
            crop_seed, flip_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2), 2)
            if self.preprocessing.min_crop_area is not None:
                image = inception_crop_of(image, crop_seed, self.preprocessing.min_crop_area)
            pixels = scale_pixels(resize_image(image[..., :3], self.image_size))
            mask = tf.image.resize(image[..., 3:], self.image_size, "nearest")
            image = tf.concat([pixels, tf.cast(mask, tf.float32)], -1)
            return self._flip(image, flip_seed) if self.preprocessing.flip else image

        return make_image

    def read(self, encoded, seed):
        """Decode an image and its mask. If this succeeds, the files are not broken."""
        return decode_pair(encoded, self.num_classes)


# Outside of a `tf.function`, `tf.numpy_function` would drop zeros at the end of bytes.
@tf.function(autograph=False)
def decode_pair(encoded, num_classes):
    """Decode the result of `pack` to an image with a mask, int32 `(height, width, 4)`.

    Raises `tf.errors.InvalidArgumentError` if a file cannot be decoded, or its size differs.
    """
    image, mask = unpack(encoded)
    image = tf.cast(decode_function(image), tf.int32)
    mask = tf.numpy_function(
        lambda *arguments: read_mask(*arguments, num_classes), [mask, tf.shape(image)[:2]], tf.int32
    )
    return tf.ensure_shape(tf.concat([image, mask[..., None]], -1), (None, None, 4))


def read_mask(encoded, size, num_classes):
    """Decode a mask to class numbers, int32 `(height, width)`; `IGNORED` for pixels without class.

    Raises `ValueError` if the bytes are not an image of this size with one class number per pixel.
    """
    try:
        with PIL.Image.open(io.BytesIO(encoded)) as picture:
            mode, shape = picture.mode, picture.size[::-1]
            # Do not decode a mask of another size, which may be very large.
            is_valid = shape == tuple(size) and mode in _MODES
            mask = np.asarray(picture, "int32") if is_valid else None
    # Pillow raises a dozen kinds of exceptions for damaged files.
    except Exception as error:
        reason = re.sub(r" <.*>", "", str(error))
        raise ValueError(f"a mask must be a PNG file ({reason})") from error
    if shape != tuple(size):
        raise ValueError(
            f"a mask must have the size {tuple(map(int, size))} of its image. Received: {shape}"
        )
    if mode not in _MODES:
        raise ValueError(f"a mask must have one number per pixel. Received: the mode {mode}")
    mask = mask // _gray_step(encoded)
    if wrong := sorted({*np.unique(mask).tolist()} - {*range(num_classes), IGNORED}):
        raise ValueError(
            f"a mask must have numbers below {num_classes}, or {IGNORED}. Received: {wrong}"
        )
    return mask


def _gray_step(encoded):
    """Return the factor by which Pillow scales pixels: 1, except for PNGs with 2 or 4 gray bits."""
    is_gray = encoded[:4] == b"\x89PNG" and encoded[25] == 0
    return 255 // (2 ** encoded[24] - 1) if is_gray and encoded[24] in (2, 4) else 1


def split_masks(images, labels, seed):
    """Return the first three channels as images, and the fourth channel as masks, int32."""
    return images[..., :3], tf.cast(images[..., 3], tf.int32)


def examples_of(source, skipped=None):
    """Yield the images and the masks of a `Source`, without resizing them.

    Args:
        source: a `Source` with masks.
        skipped: a `Skipped` that records the examples that cannot be decoded.

    Yields:
        An image, uint8 `(height, width, 3)`, and its mask, int32 `(height, width)`.
    """
    for number, payload, _ in source.examples:
        try:
            pixels = decode_pair(source.read(payload), len(source.class_names)).numpy()
        except tf.errors.OpError as error:
            if skipped is not None:
                skipped.add(int(number), explain(error))
            continue
        yield pixels[..., :3].astype("uint8"), pixels[..., 3]


def count_pixels(source):
    """Count the pixels of each class in the masks of a `Source`.

    Returns:
        `(counts, share)`: an int64 array with the number of pixels of each class, and the share of
        pixels with a class (mean over the masks), or 0 if no mask can be read.
    """
    num_classes = len(source.class_names)
    counts, shares = np.zeros(num_classes, "int64"), []
    for _, mask in examples_of(source):
        known = mask[mask != IGNORED]
        counts += np.bincount(known, minlength=num_classes)
        shares.append(known.size / mask.size)
    return counts, np.mean(shares) if shares else 0.0
