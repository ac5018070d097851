"""RandAugment, Random Erasing, MixUp and CutMix of training images.

Keras layers draw from stateful generators, so two runs of a parallel pipeline differ. In this
module, all random numbers are drawn from the seed of the image or batch, so that runs are
reproducible and can be resumed.
"""

import threading

import keras
import numpy as np
import tensorflow as tf

from keras_vit.data.images import operations

# big_vision's `translate_const` and `cutout_const` are numbers of pixels for images of this side.
ORIGINAL_SIDE = 224
# `_MAX_LEVEL` of big_vision; a magnitude may be greater.
_FULL_LEVEL = 10
# Number of seeds with which a layer is checked.
_TRIES = 4
OPERATIONS = {
    "AutoContrast": operations.auto_contrast,
    "Equalize": operations.equalize,
    "Invert": operations.invert,
    "Rotate": operations.rotate,
    "Posterize": operations.posterize,
    "Solarize": operations.solarize,
    "Color": operations.color,
    "Contrast": operations.contrast,
    "Brightness": operations.brightness,
    "Sharpness": operations.sharpness,
    "ShearX": operations.shear_x,
    "ShearY": operations.shear_y,
    "TranslateX": operations.translate_x,
    "TranslateY": operations.translate_y,
    "Cutout": operations.cutout,
    "SolarizeAdd": operations.solarize_add,
}


class Draws(keras.random.SeedGenerator):
    """Stateless random numbers, computed from the seed given to `begin`.

    Tracing fixes the order in which a `tf.function` draws. So the numbers depend only on the seed,
    and are the same eagerly and inside `Dataset.map`.
    """

    def __init__(self):
        # `super().__init__` would create a variable.
        self._seed, self._count = None, 0

    def begin(self, seed):
        """Start to draw from a seed, an int tensor of shape `(2,)`."""
        self._seed, self._count = seed, 0

    def next(self, ordered=True):
        """Return the seed of the next draw."""
        self._count += 1
        return tf.random.experimental.stateless_fold_in(self._seed, self._count)


def rand_augment(layers, magnitude):
    """Return the function of RandAugment, which applies operations that are chosen at random.

    Each of `layers` applies one of sixteen operations with equal probability, as in AugReg. Values
    are first truncated to integers, as big_vision's resizing does. If the smaller side has 224
    pixels, the result is the same as in big_vision. For other sizes, the distance of translations
    and the size of Cutout are proportional to the smaller side. In big_vision they are not, so that
    little would be left of an image of 32 pixels.

    Args:
        layers: number of operations per image.
        magnitude: from 0 to 30; 10 is full scale in big_vision, and larger values are stronger.

    Returns:
        A function of an image, float32 `(height, width, 3)` in [0, 255], and a seed, an int tensor
        `(2,)`. It returns an image of the same shape and range, with integer values.

    Reference:
        RandAugment, arXiv 1909.13719; `pp/archive/randaug.py` of big_vision.
    """

    # The layers share one graph.
    @tf.function(autograph=False)
    def apply_one(image, choice, sign, center):
        side = tf.reduce_min(tf.shape(image)[:2])
        arguments = operation_arguments(magnitude, sign, side)
        arguments["Cutout"] += (center,)
        branches = [
            lambda name=name, apply=apply: apply(image, *arguments[name])
            for name, apply in OPERATIONS.items()
        ]
        # Some operations lose the static shape.
        return tf.ensure_shape(tf.switch_case(choice, branches), image.shape)

    @tf.function(autograph=False)
    def augment(image, seed):
        choices, signs, centers = draw_layers(layers, tf.shape(image)[:2], seed)
        image = tf.saturate_cast(image, tf.uint8)
        for layer in range(layers):
            image = apply_one(image, choices[layer], signs[layer], centers[layer])
        return tf.cast(image, tf.float32)

    return augment


def operation_arguments(level, sign=1, side=ORIGINAL_SIDE):
    """Return the arguments of each operation at a magnitude, a dictionary from names to tuples.

    Args:
        level: the magnitude.
        sign: 1 or -1, the sign of arguments that can be negative.
        side: smaller side of the image in pixels, an integer.

    Reference:
        `level_to_arg` in `pp/archive/autoaugment.py` of big_vision.

    Example:
    >>> operation_arguments(15)["Rotate"], operation_arguments(15, side=32)["Cutout"]
    ((45.0,), (8,))
    """
    share = level / _FULL_LEVEL
    factor = share * 1.8 + 0.1
    pixels = sign * (share * 100) * (tf.cast(side, tf.float32) / ORIGINAL_SIDE)
    return {
        **dict.fromkeys(("AutoContrast", "Equalize", "Invert"), ()),
        "Rotate": (sign * (share * 30),),
        "Posterize": (int(share * 4),),
        "Solarize": (int(share * 256),),
        "SolarizeAdd": (int(share * 110),),
        **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), (factor,)),
        **dict.fromkeys(("ShearX", "ShearY"), (sign * (share * 0.3),)),
        **dict.fromkeys(("TranslateX", "TranslateY"), (pixels,)),
        "Cutout": (int(share * 40) * side // ORIGINAL_SIDE,),
    }


def draw_layers(layers, size, seed):
    """Draw the random choices of RandAugment.

    Args:
        layers: number of operations per image.
        size: int tensor `(2,)`, height and width of the image.
        seed: int tensor `(2,)`.

    Returns:
        For each layer, the index of the operation, int32 `(layers,)`; the sign of its argument,
        float32 `(layers,)`; and the center of Cutout, int32 `(layers, 2)`.
    """
    numbers = tf.random.stateless_uniform((layers, 4), seed)
    choices = tf.cast(numbers[:, 0] * len(OPERATIONS), tf.int32)
    signs = tf.where(numbers[:, 1] < 0.5, -1.0, 1.0)
    centers = tf.cast(numbers[:, 2:] * tf.cast(size, tf.float32), tf.int32)
    return choices, signs, centers


def random_erasing(share):
    """Return the function of Random Erasing, which fills a rectangle of some images with noise.

    Its arguments and result are as in `rand_augment`. `share` is the share of images to change.

    Reference:
        Random Erasing Data Augmentation, arXiv 1708.04896.
    """
    draws = Draws()
    layer = _seeded(keras.layers.RandomErasing, draws)(factor=(share, share), dtype="float32")

    @tf.function
    def erase(image, seed):
        draws.begin(seed)
        return layer(image[None], training=True)[0]

    return erase


def by_layer(layer, shape):
    """Return the function of a Keras or keras-cv layer; arguments and result as in `rand_augment`.

    The layer is called eagerly on one image at a time, so that its generators can be set to the
    seed of the image: those of Keras, or else TensorFlow's global seed and generator, which
    keras-cv uses.

    Args:
        layer: the layer.
        shape: shape of the images.

    Raises:
        ValueError: if the layer has other random generators, so that runs could not be resumed.
    """
    lock = threading.Lock()
    generators = [each for each in layer.variables if keras.backend.is_int_dtype(each.dtype)]

    def call(image, seed):
        state = np.asarray(seed) % 2**31
        with lock:
            for generator in generators:
                generator.assign(state)
            if not generators:
                tf.random.get_global_generator().reset_from_seed(state)
                tf.random.set_seed(int(state[0]) << 31 | int(state[1]))
            return keras.ops.convert_to_numpy(layer(np.asarray(image)[None], training=True))[0]

    def apply(image, seed):
        image = tf.py_function(call, [image, seed], tf.float32)
        return tf.clip_by_value(tf.ensure_shape(image, shape), 0, 255)

    noise = tf.random.stateless_uniform(shape, (0, 0), 0, 255)
    for seed in np.arange(2 * _TRIES).reshape(_TRIES, 2):
        if not np.array_equal(apply(noise, seed), apply(noise, seed)):
            raise ValueError(
                "`augmentation` must be a layer whose random numbers can be repeated. A layer of "
                "keras-cv must not have a `seed`. "
                f"Received: the layer {layer.name!r}, which changes an image in different ways"
            )
    return apply


def mixing(augmentation):
    """Return a function that applies MixUp or CutMix to a batch.

    If both are set, one of the two is chosen at random for each batch.

    Returns:
        A function of float32 images `(batch, height, width, 3)`, soft labels `(batch, classes)` and
        a seed. It returns images and labels of the same shapes.

    Reference:
        MixUp, arXiv 1710.09412; CutMix, arXiv 1905.04899.
    """
    draws = Draws()
    layers = []
    if augmentation.mixup:
        layers.append(_seeded(keras.layers.MixUp, draws)(augmentation.mixup, dtype="float32"))
    if augmentation.cutmix:
        alpha = (augmentation.cutmix, augmentation.cutmix)
        layers.append(_seeded(keras.layers.CutMix, draws)(alpha, dtype="float32"))

    @tf.function
    def mix(images, labels, seed):
        draws.begin(seed)
        choice = tf.random.stateless_uniform((), draws.next(), 0, len(layers), tf.int32)
        data = {"images": images, "labels": labels}
        branches = [lambda layer=layer: layer(dict(data), training=True) for layer in layers]
        mixed = tf.switch_case(choice, branches)
        return mixed["images"], mixed["labels"]

    return mix


def _seeded(layer_class, draws):
    """Return a subclass of a Keras layer that draws its random numbers from `draws`."""

    class Seeded(layer_class):
        def get_random_transformation(self, data, training=True, seed=None):
            return super().get_random_transformation(data, training=training, seed=draws)

    return Seeded
