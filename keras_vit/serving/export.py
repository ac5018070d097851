"""A model and its preprocessing as a SavedModel for TF Serving."""

import json
import pathlib
import shutil

import keras

from keras_vit.models.surgery import check_classifier


def export(model, directory, version="auto", class_names=None):
    """Writes a SavedModel that TF Serving loads, under `directory/<version>/`.

    Signatures: `serving_default` takes `image_bytes`, strings `(batch,)`, the encoded images (JPEG,
    PNG, GIF, BMP or WebP, of any size), and preprocesses them in the graph as in evaluation;
    `images` takes preprocessed `images`, float32 `(batch, height, width, 3)` in [-1, 1]. Both
    return float32 `logits` and `probabilities` `(batch, num_classes)`.

    The directory is written beside its place and renamed, so TF Serving never sees half a model.

    Args:
        model: a classifier of this package that returns logits, on the TensorFlow or JAX backend.
        directory: path of the model's directory, which holds its versions.
        version: a positive integer; `"auto"` for the next free one.
        class_names: names of the classes, written to `assets.extra/labels.txt`.

    Returns:
        The `pathlib.Path` of the version.

    Raises:
        ValueError: if the version exists, the directory cannot be written, the model is not a
            classifier of RGB images, or the backend cannot export.

    Example:
    >>> model = keras_vit.ViT_Ti16(num_classes=2, image_size=32)
    >>> path = keras_vit.export(model, tmp_path / "pets", class_names=["cat", "dog"])
    >>> path.name, (path / "assets.extra" / "labels.txt").read_text().split()
    ('1', ['cat', 'dog'])
    """
    _check_model(model, class_names)
    version = _check_version(pathlib.Path(directory).expanduser(), version)
    directory, is_new = _make_directory(directory)
    partial = directory / f".{version}.partial"
    target = directory / str(version)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write_saved_model(model, partial)
        if class_names is not None:
            labels = partial / "assets.extra" / "labels.txt"
            labels.parent.mkdir(exist_ok=True)
            labels.write_text("".join(f"{name}\n" for name in class_names))
        _write_facts(model, partial)
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if is_new and not any(directory.iterdir()):
            directory.rmdir()
    return target


def _check_model(model, class_names):
    if keras.backend.backend() == "torch":
        raise ValueError(
            "`export` needs the TensorFlow or JAX backend: save the model as a .keras file, load "
            "it with KERAS_BACKEND=tensorflow and export it there. Received: backend='torch'"
        )
    num_classes = check_classifier(model)
    if class_names is None:
        return
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(
            f"`class_names` must be a list that names the model's {num_classes} classes. "
            f"Received: class_names={class_names!r}"
        )
    if any("\n" in name for name in class_names):
        raise ValueError(
            f"`class_names` must be of one line each. Received: class_names={class_names!r}"
        )


def _make_directory(directory):
    """The directory, made where it is not there yet, and whether it was made."""
    directory = pathlib.Path(directory).expanduser()
    if (directory / "run.json").exists():
        raise ValueError(
            "`directory` must be one for exports, not that of a training run. "
            f"Received: directory={str(directory)!r}"
        )
    is_new = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            "`directory` must be a directory that can be written. "
            f"Received: directory={str(directory)!r} ({error.strerror})"
        ) from error
    return directory, is_new


def _check_version(directory, version):
    taken = {
        int(entry.name)
        for entry in (directory.iterdir() if directory.is_dir() else ())
        if entry.name.isdigit()
    }
    if version == "auto":
        return max(taken, default=0) + 1
    if not isinstance(version, int) or version < 1 or version in taken:
        raise ValueError(
            "`version` must be a positive integer that is not taken, or 'auto'. "
            f"Received: version={version!r}, taken in {str(directory)!r}: {sorted(taken)}"
        )
    return version


def _write_saved_model(model, path):
    import tensorflow as tf

    from keras_vit.data.decoding import decode
    from keras_vit.data.images import evaluation_image

    height, width = model.input_shape[1:3]
    as_float32 = keras.layers.Activation("linear", dtype="float32")
    logits = as_float32(model.outputs[0])
    probabilities = keras.layers.Softmax(dtype="float32")(logits)
    served = keras.Model(model.input, {"logits": logits, "probabilities": probabilities})

    archive = keras.export.ExportArchive()
    answer = archive.track_and_add_endpoint(
        "images", served, [tf.TensorSpec((None, height, width, 3), "float32", name="images")]
    )

    def answer_bytes(image_bytes):
        images = tf.map_fn(
            lambda encoded: evaluation_image(decode(encoded), (height, width)),
            image_bytes,
            fn_output_signature=tf.TensorSpec((height, width, 3), "float32"),
        )
        return answer(images)

    archive.add_endpoint(
        "serving_default",
        tf.function(
            answer_bytes, [tf.TensorSpec((None,), "string", name="image_bytes")], autograph=False
        ),
    )
    archive.write_out(path, verbose=False)


def _write_facts(model, path):
    facts = {
        "model": model.name,
        "image_size": model.input_shape[1:3],
        "num_classes": model.output_shape[-1],
        "parameters": model.count_params(),
        "keras": keras.__version__,
    }
    (path / "model.json").write_text(json.dumps(facts, indent=2) + "\n")
