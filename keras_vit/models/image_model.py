"""`ImageModel`: the class of our models, which have options and metadata."""

import dataclasses
import logging

import keras
import numpy as np

from keras_vit.core.image_spec import MAX_NORMALIZED, WHOLE_IMAGE, ImageSpec
from keras_vit.core.multi_label import check_thresholds
from keras_vit.core.text import check_class_names
from keras_vit.layers import DistilledHead
from keras_vit.layers.mlp import as_activation
from keras_vit.models.options import options_from_config

# Losses that take probabilities by default.
CROSSENTROPIES = (
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.binary_crossentropy,
)


@keras.saving.register_keras_serializable("keras_vit")
class ImageModel(keras.Model):
    """A Functional model that carries the options it was built with.

    `options` are the `VitOptions` or `ResNetOptions` that build a model of the same architecture;
    `None` for a backbone or a segmenter. `.keras` files, `keras_vit.resize` and
    `keras_vit.replace_head` keep them; `keras.models.clone_model` does not.

    The model takes images in [-1, 1], even if its weights were trained on another range. It also
    has the following metadata, which `.keras` files keep:

    - `class_names`: a tuple of the names of the classes, or `None`. It can be assigned. A model
      with a new head has no class names.
    - `thresholds`: for a multi-label model (its probabilities are sigmoids), a tuple with the
      probability above which each class is predicted; otherwise `None`. It can be assigned.
    - `predicts_values`: whether the outputs are values (regression) instead of logits. Then
      `class_names` are the names of the values. It can be assigned.
    - `image_spec`: a `keras_vit.core.image_spec.ImageSpec`, which describes how images were
      resized, cropped and normalized.
    - `layout`: name of the checkpoint layout that the weights were read from, or `None`.
      `keras_vit.save_checkpoint` prefers this layout to other layouts of the same project.

    Example:
    >>> model = keras_vit.resize(keras_vit.ViT_Ti16(num_classes=10, image_size=32), 48)
    >>> model.options.image_size, model.options.depth
    ((48, 48), 12)
    """

    # Set on the class: with an `__init__`, Keras would not treat the subclass as Functional.
    # `config_to_save` is the `get_config` of the model that is saved instead of this model.
    options = layout = config_to_save = _class_names = _thresholds = None
    predicts_values = False
    image_spec = WHOLE_IMAGE

    @property
    def class_names(self):
        return self._class_names

    @class_names.setter
    def class_names(self, names):
        if names is not None:
            names = check_class_names(names, num_classes=self.output_shape[-1])
        self._class_names = names

    @property
    def thresholds(self):
        return self._thresholds

    @thresholds.setter
    def thresholds(self, thresholds):
        if thresholds is not None:
            thresholds = check_thresholds(thresholds, self.output_shape[-1])
        self._thresholds = thresholds

    @property
    def pyramid_outputs(self):
        """The maps of a backbone by level, as detectors of KerasHub read them."""
        return self.output

    def fit(self, x=None, *args, **kwargs):
        """Train like `keras.Model.fit`. If `x` is an array, its first image is checked."""
        check_images(x, "x")
        warn_of_loss(self)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """Evaluate like `keras.Model.evaluate`. If `x` is an array, its first image is checked."""
        check_images(x, "x")
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """Predict like `keras.Model.predict`. If `x` is an array, its first image is checked."""
        check_images(x, "x")
        return super().predict(x, *args, **kwargs)

    def get_config(self):
        return {
            **(self.config_to_save or super().get_config)(),
            "options": self.options and dataclasses.asdict(self.options),
            "class_names": self.class_names,
            "thresholds": self.thresholds,
            "predicts_values": self.predicts_values,
            "image_spec": dataclasses.asdict(self.image_spec),
            "layout": self.layout,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        names = "options", "class_names", "thresholds", "predicts_values", "image_spec", "layout"
        metadata = {name: config.pop(name) for name in names}
        # Options may contain activations that are registered functions.
        options = keras.saving.deserialize_keras_object(metadata["options"])
        model = super().from_config(config, custom_objects)
        model.options = options and options_from_config(options)
        model.class_names, model.thresholds = metadata["class_names"], metadata["thresholds"]
        model.predicts_values = metadata["predicts_values"]
        model.image_spec, model.layout = ImageSpec(**metadata["image_spec"]), metadata["layout"]
        follow_dtype(model)
        return model


def warn_of_loss(model):
    """Log a warning if the outputs of a model are logits, and its loss takes probabilities."""
    loss = keras.losses.get(model.loss) if isinstance(model.loss, str) else model.loss
    function = getattr(loss, "fn", loss)
    is_of_logits = model.options is None or model.options.classifier_activation is None
    if function in CROSSENTROPIES and not getattr(loss, "from_logits", False) and is_of_logits:
        logging.getLogger("keras_vit").warning(
            "the model returns logits, and the loss %s takes probabilities: give it "
            "from_logits=True, or build the model with classifier_activation='softmax'",
            function.__name__,
        )


def follow_dtype(model):
    """Set the dtype policy of a model with layers in float16, so that `compile` scales the loss.

    Otherwise a Functional model has the global policy, whatever policy its layers have.
    """
    if computes_in_float16(model):
        model.dtype_policy = "mixed_float16"


def computes_in_float16(model):
    """Whether a layer of a model computes in float16, in which small gradients are 0."""
    return any(layer.compute_dtype == "float16" for layer in model.layers)


def functional(model, output, **options):
    """Return a Functional model from the input of `model`: an `ImageModel` if `model` is one."""
    kind = ImageModel if isinstance(model, ImageModel) else keras.Model
    return kind(model.input, output, name=model.name, **options)


def copy_attributes(model, new, keeps_head=True, **changes):
    """Copy metadata and options, with changes, from a model to a new model that was made from it.

    Class names, thresholds and `predicts_values` are only copied if the new model keeps the head.
    """
    if not (isinstance(model, ImageModel) and isinstance(new, ImageModel)):
        return
    new.options = model.options and model.options.replace(**changes)
    new.image_spec, new.layout = model.image_spec, model.layout
    follow_dtype(new)
    if keeps_head:
        new.class_names, new.thresholds = model.class_names, model.thresholds
        new.predicts_values = model.predicts_values


def options_of(model):
    """Return the options of a model, or raise an error if it has none."""
    options = getattr(model, "options", None)
    if options is None:
        raise ValueError(
            "`model` must be one of the builders, or made from one by `resize` or `replace_head`. "
            f"Received: {type(model).__name__} {getattr(model, 'name', model)!r}"
        )
    return options


def image_spec_of(model):
    """Return the `ImageSpec` of a model; the default if the model is not an `ImageModel`."""
    return getattr(model, "image_spec", WHOLE_IMAGE)


def zero_head(num_classes, activation=None, distilled=False):
    """Return a float32 linear classifier, whose weights are zero (section 3.2 of the paper).

    `distilled`: whether the model has a distillation token.
    """
    if distilled:
        return DistilledHead(num_classes, activation, dtype="float32", name="head")
    return keras.layers.Dense(
        num_classes,
        activation=as_activation(activation),
        kernel_initializer="zeros",
        dtype="float32",
        name="head",
    )


def unit_norm():
    """Return a layer that divides vectors by their Euclidean norms, in float32."""
    return keras.layers.UnitNormalization(dtype="float32", name="unit_norm")


def check_images(images, argument="images"):
    """Raise `ValueError` if the first image of an array has integers or values beyond [-10, 10].

    The most common mistake is to pass pixels from 0 to 255, for which predictions would be silently
    wrong. Datasets, generators and tensors of a traced function are not checked.

    Args:
        images: array or tensor, a list or dictionary of them, or another input of a model.
        argument: name of the argument for the error message.

    Example:
    >>> from keras_vit.models.image_model import check_images
    >>> check_images(np.linspace(-1, 1, 12).reshape(1, 2, 2, 3))
    >>> check_images(np.zeros((1, 2, 2, 3), "uint8"))
    Traceback (most recent call last):
    ValueError: `images` must be scaled to [-1, 1], as `keras_vit.preprocess` does. Received: ...
    """
    for array in keras.tree.flatten(images):
        if not (isinstance(array, np.ndarray) or keras.ops.is_tensor(array)) or not len(array):
            continue
        dtype = keras.backend.standardize_dtype(array.dtype)
        first = keras.ops.convert_to_numpy(keras.ops.cast(array[:1], "float32"))
        # Written with `not ... <=`, so that NaN is an error, too.
        if not keras.backend.is_float_dtype(dtype) or not (np.abs(first) <= MAX_NORMALIZED).all():
            raise ValueError(
                f"`{argument}` must be scaled to [-1, 1], as `keras_vit.preprocess` does. "
                f"Received: values from {first.min()} to {first.max()} of dtype {dtype}"
            )
