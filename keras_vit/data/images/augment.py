"""Random changes of training images, seeded by image and by batch.

The operations are those of keras-cv and Keras. Their own random numbers come from generators with
a state, so that in a parallel pipeline no two runs see the same; here each number is drawn from the
seed of its image, so that every run does and a stopped one can go on.
"""

import keras
import tensorflow as tf

from keras_vit.data.images.augmentations import MAX_MAGNITUDE


class Draws(keras.random.SeedGenerator):
    """Random numbers without a state: each is made from the seed that was begun with.

    The order in which a function draws is settled when TensorFlow traces it, so its numbers depend
    on the seed alone, and are the same eagerly and inside `Dataset.map` where the function is a
    `tf.function`.
    """

    def __init__(self):
        # Without the variable of the generator that Keras has.
        self._seed, self._count = None, 0

    def begin(self, seed):
        """Draws from here on come from this seed, an int tensor of shape `(2,)`."""
        self._seed, self._count = seed, 0

    def next(self, ordered=True):
        """The seed of the next draw, as Keras's layers ask for it."""
        self._count += 1
        return tf.random.experimental.stateless_fold_in(self._seed, self._count)

    def uniform(self, shape, minval=0, maxval=1, dtype=tf.float32):
        """The next uniform numbers, as keras-cv's layers ask for them."""
        return tf.random.stateless_uniform(shape, self.next(), minval, maxval, dtype)

    def normal(self, shape, mean, stddev, dtype=tf.float32):
        """The next normal numbers."""
        return tf.random.stateless_normal(shape, self.next(), mean, stddev, dtype)


def rand_augment(layers, magnitude):
    """RandAugment: operations chosen at random, the same strength for all of them.

    The operations are keras-cv's ten (AutoContrast, Equalize, Solarize, Color, Contrast, Brightness
    and shearing and translation along both axes) and one that does nothing. The original of AugReg
    has sixteen of nearly the same strengths (`pp/archive/randaug.py` of big_vision).

    Args:
        layers: how many operations an image undergoes.
        magnitude: 0 to 30.

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
    """A rectangle of noise in place of a part of some images (Random Erasing).

    Args:
        share: of the images of which a rectangle is erased, 0 to 1.

    Returns:
        A function of an image and a seed as of `rand_augment`.

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
    """MixUp or CutMix of a batch; of both, one or the other for each batch, at random.

    Args:
        augmentation: an `Augmentation` that mixes.

    Returns:
        A function of images `(batch, height, width, 3)`, of labels as shares of classes
        `(batch, classes)` and of a seed, that returns images and labels of those shapes, float32.

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
        mixed = tf.switch_case(
            choice, [lambda one=one: one(dict(data), training=True) for one in layers]
        )
        return mixed["images"], mixed["labels"]

    return mix


def _have_generator():
    """Make TensorFlow have a global generator, which keras-cv's layers ask for and here never use.

    Where operations must be deterministic, TensorFlow makes none by itself.
    """
    try:
        tf.random.get_global_generator()
    except RuntimeError:
        tf.random.set_global_generator(tf.random.Generator.from_seed(0))


def _draw_from(layer, draws):
    """Makes a layer of keras-cv take its random numbers from `draws`."""
    from keras_cv.core import FactorSampler

    # Whatever the global policy is, images are float32.
    layer.dtype_policy = keras.DTypePolicy("float32")
    # What keras-cv's documentation names to subclasses.
    layer._random_generator = draws
    for name, value in list(vars(layer).items()):
        if isinstance(value, FactorSampler):
            setattr(layer, name, _seeded_factor(value, draws))


def _seeded_factor(sampler, draws):
    """The same distribution as a sampler of keras-cv, drawn from `draws`."""
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
    """A layer of Keras that takes its random numbers from `draws`."""

    class Seeded(layer_class):
        def get_random_transformation(self, data, training=True, seed=None):
            return super().get_random_transformation(data, training=training, seed=draws)

    return Seeded
