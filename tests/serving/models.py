"""Small models of every family, with weights under which their outputs differ."""

from keras_vit.models import resnet, vision_transformer
from tests.contract import randomise
from tests.images import encode, random_image
from tests.models.test_vit import TINY, images

FAMILIES = {
    "token": {},
    "erf": {"activation": "gelu", "pooling": "map"},
    "gap": {"pooling": "gap", "representation_size": 6, "dropout": 0.1},
    "dinov2": {"num_registers": 2, "layer_scale": 0.1, "activation": "gelu"},
    "hybrid": {"patch_size": 1, "resnet_stages": (1, 1), "resnet_width": 32},
}


def small_classifier(family, **options):
    """A model of three classes for images of 16 x 24 pixels."""
    options = {"num_classes": 3, "image_size": (16, 24), **options}
    if family == "bit":
        model = resnet((1, 1), 32, **options)
    else:
        model = vision_transformer(**{**TINY, **FAMILIES[family], **options})
    randomise(model)
    head = model.get_layer("head").kernel
    # Logits of ordinary size.
    head.assign(images(*head.shape) * (3 / head.shape[0]) ** 0.5)
    return model


NAMES = ("cat", "dog", "eel")


def classifier(**options):
    model = vision_transformer(**{**TINY, **options})
    head = model.get_layer("head").kernel
    head.assign(images(*head.shape))
    return model


FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")


def files(count):
    """Encoded images of different sizes and formats."""
    names = [FORMATS[index % len(FORMATS)] for index in range(count)]
    return [encode(random_image(10 + 3 * i, 30 + i, seed=i), name) for i, name in enumerate(names)]
