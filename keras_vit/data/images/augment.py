"""Random augmentation of training images, seeded per image and per batch.

The operations are those of keras-cv and Keras. They draw from stateful generators, so that two runs
of a parallel pipeline differ. Here each number is drawn from the seed of its image, so that runs
are equal and a stopped run can be resumed.
"""

import keras
import tensorflow as tf

from keras_vit.data.images.augmentations import MAX_MAGNITUDE


class Draws(keras.random.SeedGenerator):
    """Stateless random numbers: each is computed from the seed given to `begin`.

    The order in which a `tf.function` draws is fixed when TensorFlow traces it, so its numbers
    depend on the seed alone, and are the same eagerly and inside `Dataset.map`.
    """

    def __init__(self):
        # Without the variable of a generator of Keras.
        self._seed, self._count = None, 0

    def begin(self, seed):
        """Start to draw from a seed, an int tensor of shape `(2,)`."""
        self._seed, self._count = seed, 0

    def next(self, ordered=True):
        """Return the seed of the next draw, for layers of Keras."""
        self._count += 1
        return tf.random.experimental.stateless_fold_in(self._seed, self._count)

    def uniform(self, shape, minval=0, maxval=1, dtype=tf.float32):
        """Return the next uniform numbers, for layers of keras-cv."""
        return tf.random.stateless_uniform(shape, self.next(), minval, maxval, dtype)

    def normal(self, shape, mean, stddev, dtype=tf.float32):
        """Return the next normal numbers."""
        return tf.random.stateless_normal(shape, self.next(), mean, stddev, dtype)


def rand_augment(layers, magnitude):
    """Make RandAugment: operations chosen at random, with the same magnitude.

    The operations are the ten of keras-cv (AutoContrast, Equalize, Solarize, Color, Contrast,
    Brightness and shearing and translation along both axes) and the identity. The original of
    AugReg has sixteen of nearly the same strengths (`pp/archive/randaug.py` of big_vision).

    Args:
        layers: number of operations per image.
        magnitude: from 0 to 30.

    Returns:
        A function of an image, float32 `(height, width, 3)` in [0, 255], and a seed, an int tensor
        `(2,)`, that returns an image of that shape and range.

    Raises:
        ValueError: with the torch backend of Keras.

    Reference:
        RandAugment, arXiv 1909.13719.
    """
    if keras.backend.backend() == "torch":
        raise ValueError(
            "RandAugment must be used with the TensorFlow or JAX backend of Keras: the layers of "
            "keras-cv do not work with torch. Received: KERAS_BACKEND=torch"
        )
    import keras_cv

    draws = Draws()
    _have_generator()
    operations = keras_cv.layers.RandAugment.get_standard_policy(
        (0, 255), magnitude / MAX_MAGNITUDE, magnitude_stddev=0.0
    )
    for operation in operations:
        _draw_from(operation, draws)

    @tf.function
    def augment(image, seed):
        draws.begin(seed)
        for _ in range(layers):
            choice = draws.uniform((), maxval=len(operations) + 1, dtype=tf.int32)
            branches = [lambda one=one, image=image: one(image) for one in operations]
            image = tf.switch_case(choice, [*branches, lambda image=image: image])
        return image

    return augment


def random_erasing(share):
    """Make Random Erasing, a function as of `rand_augment`: noise in a rectangle of some images.

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


def mixing(augmentation):
    """Make MixUp or CutMix of a batch; if both are given, one of them per batch, at random.

    Returns:
        A function of float32 images `(batch, height, width, 3)`, soft labels `(batch, classes)` and
        a seed, that returns images and labels of those shapes.

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
        choice = draws.uniform((), maxval=len(layers), dtype=tf.int32)
        data = {"images": images, "labels": labels}
        branches = [lambda one=one: one(dict(data), training=True) for one in layers]
        mixed = tf.switch_case(choice, branches)
        return mixed["images"], mixed["labels"]

    return mix


def _have_generator():
    """Make sure that TensorFlow has a global generator, which layers of keras-cv request.

    TensorFlow does not create one if operations must be deterministic. It is never used here.
    """
    try:
        tf.random.get_global_generator()
    except RuntimeError:
        tf.random.set_global_generator(tf.random.Generator.from_seed(0))


def _draw_from(layer, draws):
    """Make a layer of keras-cv take its random numbers from `draws`."""
    from keras_cv.core import FactorSampler

    # Images are float32, whatever the global policy is.
    layer.dtype_policy = keras.DTypePolicy("float32")
    # The attribute that the documentation of keras-cv names for subclasses.
    layer._random_generator = draws
    for name, value in list(vars(layer).items()):
        if isinstance(value, FactorSampler):
            setattr(layer, name, _seeded_factor(value, draws))


def _seeded_factor(sampler, draws):
    """Return a sampler with the distribution of one of keras-cv, drawn from `draws`."""
    from keras_cv.core import ConstantFactorSampler, UniformFactorSampler

    def sample(shape=(), dtype="float32"):
        if isinstance(sampler, ConstantFactorSampler):
            return tf.fill(shape, tf.cast(sampler.value, dtype))
        if isinstance(sampler, UniformFactorSampler):
            return draws.uniform(shape, sampler.lower, sampler.upper, dtype)
        values = draws.normal(shape, sampler.mean, sampler.stddev, dtype)
        return tf.clip_by_value(values, sampler.min_value, sampler.max_value)

    return sample


def _seeded(layer_class, draws):
    """Return a subclass of a Keras layer that takes its random numbers from `draws`."""

    class Seeded(layer_class):
        def get_random_transformation(self, data, training=True, seed=None):
            return super().get_random_transformation(data, training=training, seed=draws)

    return Seeded
