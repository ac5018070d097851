"""Exports, loaded again as a server would load them."""

import json
import os
import pathlib
from collections.abc import Iterable

import numpy as np

from keras_vit.core.arguments import as_pair
from keras_vit.core.images import WHOLE_IMAGE, ImageSpec
from keras_vit.data.images.decoding import explain
from keras_vit.data.images.transforms import read_evaluation_image
from keras_vit.serving.formats import file_names, format_of
from keras_vit.serving.runners import load_runner


def load_export(version):
    """Load a version of an export, of any format.

    Returns:
        A function from a list of encoded images to their logits, float32 `(images, num_classes)`.
        It raises `tf.errors.InvalidArgumentError` for an image that cannot be decoded, even if the
        export only flags it, and `ValueError` for logits that are not finite.
    """
    version = pathlib.Path(version)
    size, answer = load_parts(version)
    if size is None:
        return answer
    image_spec, _ = recorded(version)
    return lambda encoded: answer(preprocess_encoded(encoded, size, image_spec))


def load_parts(version, image_size=None):
    """Load a version of an export, of any format, without its preparation of images.

    Args:
        version: path of its directory.
        image_size: `(height, width)` for an export of any size; by default that of the model.

    Returns:
        `(size, answer)`: the `(height, width)` of prepared images, or `None` for an export that
        takes encoded ones; and a function from a list of such images to their logits.
    """
    row = format_of(version)
    if row is None:
        raise ValueError(
            "`version` must be the directory of an export's version. "
            f"Received: version={str(version)!r}, without {file_names()}"
        )
    if row.has_signatures:
        if image_size is not None:
            raise _fixed_size(version, image_size)
        answer = row.load_encoded(version / row.file_name, recorded(version)[0])
        return None, _checked(version, answer)
    run = load_runner(version / row.file_name)
    size = run.image_shape[:2]
    if image_size is not None and None not in size:
        raise _fixed_size(version, image_size)
    answer = _checked(version, lambda images: run(np.stack(images)))
    return image_size or input_size(version, size), answer


def _checked(version, answer):
    def checked(images):
        logits = answer(images)
        if len(logits) != len(images) or not np.isfinite(logits).all():
            raise ValueError(
                "An export must give finite logits for each image. Received: "
                f"{str(version)!r}, which gives {len(logits)} for {len(images)} images, "
                f"{np.isfinite(logits).mean():.0%} of them finite"
            )
        return logits

    return checked


def _fixed_size(version, image_size):
    return ValueError(
        "`image_size` (`--image-size`) must not be given for an export, which has one. "
        f"Received: {str(version)!r}, image_size={image_size}"
    )


def input_size(version, size):
    """Return the size of images for an export of this one, or that of `model.json` for any size."""
    if None in size:
        size = json.loads((version / "model.json").read_text(encoding="utf-8"))["image_size"]
    return tuple(size)


def recorded(version):
    """Return the `ImageSpec` and the thresholds that the `model.json` of a version records."""
    path = pathlib.Path(version) / "model.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return ImageSpec(**facts["image_spec"]), facts.get("thresholds")
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} must say how images are resized, as `export` writes it. "
            f"Received: {error}"
        ) from error


def preprocess_files(
    encoded: Iterable[str | os.PathLike | bytes],
    image_size: int | tuple[int, int],
    image_spec: ImageSpec = WHOLE_IMAGE,
) -> np.ndarray:
    """Decode and preprocess image files as in evaluation.

    The EXIF orientation is ignored, as in training by default.

    Args:
        encoded: iterable of paths, or of bytes, the contents of the files.
        image_size: int or `(height, width)`, in pixels, such as `model.input_shape[1:3]`.
        image_spec: an `ImageSpec`, such as `model.image_spec`; by default the whole image is
            resized as in the ViT paper.

    Returns:
        A float32 array `(images, height, width, 3)` in [-1, 1].

    Raises:
        ValueError: if there is no image, or one cannot be read or decoded, or the size is wrong.

    Example:
    >>> keras.utils.save_img(tmp_path / "black.png", np.zeros((40, 50, 3)))
    >>> keras_vit.serving.preprocess_files([tmp_path / "black.png"], 32).shape
    (1, 32, 32, 3)
    """
    image_size = as_pair(image_size, "image_size")
    if not isinstance(image_spec, ImageSpec):
        raise ValueError(
            "`image_spec` must be an `ImageSpec`, such as `model.image_spec`. "
            f"Received: image_spec={image_spec!r}"
        )
    if isinstance(encoded, (str, bytes, os.PathLike)):
        raise ValueError(
            "`encoded` must be a list of paths, or of the bytes of files. "
            f"Received: encoded={encoded!r:.80}"
        )
    images = [
        _prepared(number, file, image_size, image_spec) for number, file in enumerate(encoded)
    ]
    if not images:
        raise ValueError("`encoded` must have at least one image. Received: none")
    return np.stack(images)


def _prepared(number, file, image_size, image_spec):
    """Return an image, or raise an error that names its file or, of bytes, its number."""
    from tensorflow import errors

    is_path = not isinstance(file, (bytes, bytearray, memoryview))
    name = str(file) if is_path else f"image {number}"
    rule = "`encoded` must be image files that can be"
    try:
        contents = pathlib.Path(file).expanduser().read_bytes() if is_path else bytes(file)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{rule} read. Received: {name} ({error})") from error
    try:
        return read_evaluation_image(contents, image_size, image_spec)
    except errors.OpError as error:
        reason = explain(error, contents)
        raise ValueError(f"{rule} decoded. Received: {name} ({reason})") from error


def preprocess_encoded(encoded, image_size, image_spec=WHOLE_IMAGE):
    """Preprocess the bytes of files as `preprocess_files` does; errors are TensorFlow's."""
    return np.stack([read_evaluation_image(file, image_size, image_spec) for file in encoded])
