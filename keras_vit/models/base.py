"""The class of the models that the builders make, and what a model carries with it."""

import dataclasses
import functools
import inspect
import logging

import keras
import numpy as np

from keras_vit.core.arguments import check_options
from keras_vit.core.class_names import check_class_names
from keras_vit.core.logging import log_once
from keras_vit.core.pixels import (
    check_array,
    check_floats,
    check_range,
    scales_inputs,
    value_range,
)
from keras_vit.core.resizing import WHOLE_IMAGE, Resizing
from keras_vit.core.several_labels import check_thresholds
from keras_vit.models.calls.images import checked
from keras_vit.models.calls.losses import warn_of_loss
from keras_vit.models.calls.origin import origin_of, set_origin
from keras_vit.models.calls.values import keeping_values
from keras_vit.models.kernels.folding import assign_folded, fold
from keras_vit.models.parts import computes_in_float16, stored_size

# Arguments of the functions that build models which are no part of the architecture.
NOT_OPTIONS = ("name", "dtype", "remat", "attention_path")
NOT_HYBRID = (*NOT_OPTIONS, "resnet_stages", "resnet_width")
# Mean and standard deviation, per channel or of all, of pixels in [0, 1] that become [-1, 1].
CENTERED = ((0.5,), (0.5,))


@keras.saving.register_keras_serializable("keras_vit")
class ImageModel(keras.Model):
    """A Functional model that carries the options which it was built with.

    `options` is a dictionary of the arguments of `keras_vit.vision_transformer` or
    `keras_vit.resnet` that build a model of the same architecture. `.keras` files,
    `keras_vit.resize` and `keras_vit.replace_head` keep it. `keras.models.clone_model`, whose
    `clone_function` may change layers, loses the options (`None`) and the attributes below (their
    defaults). `model.from_config(model.get_config())` keeps both.

    Whatever its weights were trained on, the model takes images in [-1, 1]. It carries what the
    files of its weights record besides, as `options`:

    - `class_names`: a tuple of the names of the classes, or `None`. It can be set, and a new head
      has none.
    - `thresholds`: a tuple with the probability above which each class is predicted, if an image
      may have several labels (its probabilities are sigmoids), or `None`. It is like `class_names`.
    - `normalization`: `(mean, standard_deviation)` of pixels in [0, 1] with which the weights were
      trained, each a tuple of one number or one per channel. The patch projection contains it;
      `keras_vit.save_checkpoint` restores it.
    - `resizing`: a `keras_vit.core.resizing.Resizing`, how images were resized and cropped.
    - `layout`: name of the checkpoint layout that the weights were read from, or `None`.
      `keras_vit.save_checkpoint` prefers it to the other layouts of the project.

    Example:
    >>> model = keras_vit.resize(keras_vit.ViT_Ti16(num_classes=10, image_size=32), 48)
    >>> model.options["image_size"], model.options["depth"]
    ((48, 48), 12)
    """

    # Keras keeps the graph of layers in a subclass that has no constructor of its own; versions
    # differ in which other constructors they accept.
    _options = _class_names = _thresholds = None
    _has_seen_values = _is_in_loop = _is_described = False
    normalization = CENTERED
    resizing = WHOLE_IMAGE
    layout = None

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
    def options(self):
        if self._options is None:
            return None
        # Keras wraps dictionaries and lists that are attributes, and JSON has no tuples.
        return {
            name: tuple(value) if isinstance(value, (list, tuple)) else value
            for name, value in self._options.items()
        }

    @options.setter
    def options(self, options):
        self._options = {name: _as_json(value) for name, value in options.items()}
        self._is_described = True

    def _warn_of_clone(self):
        """Log a warning, once, if `keras.models.clone_model` made the model."""
        if not self._is_described:
            text = f"{self.name} has no `options`: `keras.models.clone_model` loses them, "
            text += "`resizing` and `class_names`; `from_config(model.get_config())` copies them"
            log_once(logging.WARNING, text)

    @property
    def pyramid_outputs(self):
        """The maps of a backbone by level, as detectors of KerasHub read them."""
        return self.output

    def call(self, inputs, training=None, mask=None):
        # Keras would cast pixels to floats.
        if len(self.inputs) == 1 and not scales_inputs(self):
            for images in keras.tree.flatten(inputs):
                check_floats(images)
                self._check_first(images, training)
        return super().call(inputs, training=training, mask=mask)

    def _check_first(self, images, training):
        """Check the values of the first image of an eager call."""
        # Checking every step of a loop would make an accelerator wait.
        is_step = training or self._is_in_loop
        if not (is_step and self._has_seen_values) and (bounds := value_range(images[:1])):
            check_range(bounds)
            self._has_seen_values = True

    def _check_first_batch(self, images):
        if not self._has_seen_values:
            check_array(self, images)
            self._has_seen_values = True

    def fit(self, x=None, *args, **kwargs):
        """Train as `keras.Model.fit` does; arrays, or the first image of `tf.data`, are checked."""
        # Not in `compile`: Keras would not compile a loaded model if that were overridden.
        warn_of_loss(self)
        with keeping_values(self, in_training=True), checked(self, x, in_training=True) as images:
            return super().fit(images, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """Evaluate as `keras.Model.evaluate` does; images are checked as in `fit`."""
        with keeping_values(self), checked(self, x) as images:
            return super().evaluate(images, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """Predict as `keras.Model.predict` does, with kernels standardized and cast once.

        Images are checked as in `fit`.
        """
        model = self._for_inference()
        with keeping_values(model), checked(model, x) as images:
            return keras.Model.predict(model, images, *args, **kwargs)

    def train_on_batch(self, x, *args, **kwargs):
        """Train as `keras.Model.train_on_batch` does; the first images are checked."""
        self._check_first_batch(x)
        return super().train_on_batch(x, *args, **kwargs)

    def test_on_batch(self, x, *args, **kwargs):
        """Evaluate as `keras.Model.test_on_batch` does; the first images are checked."""
        self._check_first_batch(x)
        return super().test_on_batch(x, *args, **kwargs)

    def predict_on_batch(self, x):
        """Predict as `keras.Model.predict_on_batch` does; the first images are checked."""
        self._check_first_batch(x)
        return super().predict_on_batch(x)

    def _for_inference(self):
        # Quantization and LoRA replace them.
        variables = [(variable.path, variable.dtype) for variable in self.weights]
        folded, folded_variables = vars(self).get("_folded", (None, None))
        if folded_variables != variables:
            folded = fold(self, sharing=True, casting=True)
            # A compiled function goes on with the variables of before.
            self.predict_function = None
            # Keras would track a model that is set as an attribute.
            vars(self)["_folded"] = folded, variables
        elif folded is not self:
            assign_folded(self, folded)
        if folded is not self:
            for name in ("run_eagerly", "jit_compile", "steps_per_execution"):
                if getattr(folded, name) != getattr(self, name):
                    setattr(folded, name, getattr(self, name))
                    # Keras compiles it again.
                    folded.predict_function = None
        return folded

    def get_config(self):
        self._warn_of_clone()
        return {
            **super().get_config(),
            "options": self.options,
            "class_names": self.class_names,
            "thresholds": self.thresholds,
            "normalization": self.normalization,
            "resizing": dataclasses.asdict(self.resizing),
            "layout": self.layout,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        # That module imports this one.
        from keras_vit.models.options import defaults_of

        config = dict(config)
        options = config.pop("options")
        # A file of an earlier version lacks these.
        class_names, thresholds = config.pop("class_names", None), config.pop("thresholds", None)
        mean, deviation = config.pop("normalization", CENTERED)
        resizing, layout = config.pop("resizing", {}), config.pop("layout", None)
        model = super().from_config(config, custom_objects)
        if options is not None:
            # It also lacks newer options; their defaults are what it had.
            model.options = {**_recorded(defaults_of(options)), **options}
        model.class_names, model.thresholds = class_names, thresholds
        model.normalization = tuple(mean), tuple(deviation)
        model.resizing = Resizing(**resizing)
        model.layout, model._is_described = layout, True
        follow_dtype(model)
        return model


def _recorded(options):
    """Return the arguments that a model carries as options."""
    # A model without a ResNet has no options of one.
    left_out = NOT_OPTIONS if options.get("resnet_stages", ()) is not None else NOT_HYBRID
    return {name: options[name] for name in options if name not in left_out}


def carries_options(build):
    """Decorate a function that returns an `ImageModel`: the model carries the arguments.

    The function returns the model and a dictionary of the arguments that it has normalized.
    """
    signature = inspect.signature(build)

    @functools.wraps(build)
    def build_with_options(*args, **kwargs):
        check_options(build.__name__, kwargs, signature.parameters)
        model, normalized = build(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        options = {**arguments.arguments, **normalized}
        model.options = _recorded(options)
        follow_dtype(model)
        return model

    return build_with_options


def follow_dtype(model):
    """Set a model's policy, by which `compile` scales the loss, if its layers compute in float16.

    A Functional model has the global policy otherwise, whatever its layers have.
    """
    if computes_in_float16(model):
        model.dtype_policy = "mixed_float16"


def pass_on(model, new, **changes):
    """Give a new model what the model that it was made from carries, with changed options.

    Changes of options that the model does not have are ignored. A new head has no class names.
    """
    set_origin(new, origin_of(model))
    carry(model, new, keeps_head="num_classes" not in changes)
    options = getattr(model, "options", None)
    if options is not None:
        changes = {name: value for name, value in changes.items() if name in options}
        new.options = {**options, **changes}


def carry(model, new, keeps_head):
    """Give a new model the class names, thresholds, normalization and others of another."""
    if isinstance(model, ImageModel) and isinstance(new, ImageModel):
        new.normalization, new.resizing = model.normalization, model.resizing
        if new.inputs[0].shape != model.inputs[0].shape:
            # A model of any size has the size that its positions are stored for.
            new.resizing = model.resizing.at(stored_size(new), stored_size(model))
        new.layout, new._is_described = model.layout, True
        follow_dtype(new)
        new.class_names = model.class_names if keeps_head else None
        new.thresholds = model.thresholds if keeps_head else None


def resizing_of(model):
    """Return the `Resizing` of a model; a model of another class has the default one.

    A warning is logged for a clone, which has lost it.
    """
    if isinstance(model, ImageModel):
        model._warn_of_clone()
    return getattr(model, "resizing", WHOLE_IMAGE)


def _as_json(value):
    """Return the name of an activation, a number of NumPy's as Python's, all else as it is."""
    if callable(value):
        return value.__name__
    return value.item() if isinstance(value, np.generic) else value
