"""SavedModels, for TF Serving: they decode and preprocess images themselves."""

from keras_vit.serving.formats.base import ExportFormat
from keras_vit.serving.labels import labels_of

SIGNATURES = ("bytes", "uint8", "float", "features")
USUAL_SIGNATURES = ("bytes", "uint8", "float")
# Names of the inputs of the signatures; those of other projects have other names.
_INPUTS = ("image_bytes", "images")


def write(model, path, scratch, *, signatures, class_names, top_k, **settings):
    """Write a SavedModel; the arguments are those of `ExportFormat.write` and `keras_vit.export`.

    Other settings are those of `ServedModel`.
    """
    import tensorflow as tf

    from keras_vit.models.parts import stored_size
    from keras_vit.serving.formats.served_model import ServedModel, in_tensorflow

    served = ServedModel(
        in_tensorflow(model, scratch / "model", settings["batch_size"]),
        stored_size(model),
        class_names=class_names,
        top_k=min(top_k, len(class_names)),
        folder=scratch,
        **settings,
    )
    names = ("serving_default", *signatures[1:])
    functions = [served.signature(name) for name in signatures]
    tf.saved_model.save(
        served,
        str(path.parent),
        signatures=dict(zip(names, functions, strict=True)),
        # Nobody trains it, and functions exported from JAX have no gradients that can be saved.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )


def load(path, image_spec):
    """Load a SavedModel; see `ExportFormat.load_encoded`."""
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(path.parent)
    # Errors of damaged files have many types.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ValueError(
            f"`path` must be a complete SavedModel. Received: {str(path.parent)!r} ({reason:.200})"
        ) from error
    # Prefer encoded images, then preprocessed images, then pixels.
    dtypes, served = (tf.string, tf.float32, tf.uint8), {}
    for name, function in loaded.signatures.items():
        inputs = function.structured_input_signature[1].items()
        if "logits" in function.structured_outputs:
            known = ((key, spec.dtype) for key, spec in inputs if key in _INPUTS)
            served |= {(key, dtype): name for key, dtype in known if dtype in dtypes}
    if not served:
        raise ValueError(
            "The SavedModel must be one that `keras-vit export` wrote, with a signature that "
            "returns `logits` of images. "
            f"Received: {str(path.parent)!r} with {', '.join(loaded.signatures) or 'none'}"
        )
    argument = min(served, key=lambda argument: dtypes.index(argument[1]))
    # A function is usable as long as the object that it was loaded with exists.
    facts = image_spec, path.parent, labels_of(path.parent)
    return lambda encoded: _answer(loaded.signatures[served[argument]], argument, encoded, *facts)


def _answer(function, argument, encoded, image_spec, version, names):
    """Return the logits of a signature; a fixed batch is filled up with the last image."""
    import numpy as np
    import tensorflow as tf

    from keras_vit.data.images.decoding import decode
    from keras_vit.serving.loaded import input_size, preprocess_encoded

    name, dtype = argument
    fixed = function.structured_outputs["logits"].shape[0]
    # Pixels of different sizes cannot be in one request.
    step = 1 if dtype == tf.uint8 else fixed or len(encoded)
    found = []
    for start in range(0, len(encoded), step):
        part = encoded[start : start + step]
        inputs = part + part[-1:] * ((fixed or 0) - len(part))
        if dtype == tf.float32:
            size = input_size(version, function.structured_input_signature[1][name].shape[1:3])
            inputs = preprocess_encoded(inputs, size, image_spec)
        elif dtype == tf.uint8:
            inputs = tf.stack([decode(file, image_spec.antialias) for file in inputs])
        outputs = function(**{name: tf.constant(inputs)})
        _refuse_bad_images(outputs, part, start)
        _check_labels(outputs, version, names)
        found.append(outputs["logits"].numpy()[: len(part)])
    return np.concatenate(found)


def _check_labels(outputs, version, names):
    """Raise an error if `labels.txt`, from which commands read `names`, has not those of the graph.

    `names` is `None` without the file.
    """
    # Another number of names is an error of `Predictor`.
    is_fitting = names is None or len(names) == outputs["logits"].shape[-1]
    if "top_k_labels" not in outputs or not is_fitting:
        return
    numbers, labels = (outputs[f"top_k_{kind}"].numpy() for kind in ("classes", "labels"))
    pairs = zip(numbers.ravel().tolist(), labels.ravel().tolist(), strict=True)
    for number, label in sorted(set(pairs)):
        found = str(number) if names is None else names[number]
        if found != label.decode():
            raise ValueError(
                "`assets/labels.txt` of an export must have the names that the export answers. "
                f"Received: {str(version)!r} with {found!r} for class {number}, which is "
                f"{label.decode()!r}"
            )


def _refuse_bad_images(outputs, encoded, start):
    """Raise an error for an image that an export flags: the logits of such an image are zeros."""
    import numpy as np
    import tensorflow as tf

    from keras_vit.data.images.decoding import decode_in_graph

    is_bad = outputs["is_bad"].numpy()[: len(encoded)] if "is_bad" in outputs else ()
    for index in np.flatnonzero(is_bad):
        # Raises an error with the reason.
        decode_in_graph(encoded[index])
        raise tf.errors.InvalidArgumentError(
            None, None, f"The export cannot decode image {start + index}"
        )


SAVED_MODEL = ExportFormat(
    name="saved_model",
    file_name="saved_model.pb",
    write=write,
    load_encoded=load,
    # A softmax of one logit is always 1.
    min_classes=2,
    backends=("tensorflow", "jax"),
)
