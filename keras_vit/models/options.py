"""The options of `vision_transformer` and `resnet`: the model, shapes and grid that they make."""

import inspect

from keras_vit.models.resnet import resnet
from keras_vit.models.vit import total_stride, vision_transformer

# What an option is where none is given.
DEFAULTS = {
    name: parameter.default
    for function in (resnet, vision_transformer)
    for name, parameter in inspect.signature(function).parameters.items()
}


def is_resnet(options):
    """Whether the options are those of `resnet`, which has no Transformer."""
    return "stages" in options


def make_model(options):
    """The model that these options build."""
    return resnet(**options) if is_resnet(options) else vision_transformer(**options)


def token_grid_of(options):
    """`(rows, columns)` of the patches of a model with these options, or `None` for a ResNet."""
    if is_resnet(options):
        return None
    stride = total_stride(options["patch_size"], options.get("resnet_stages"))
    return tuple(size // n for size, n in zip(options["image_size"], stride, strict=True))


def variable_shapes(options):
    """Shapes of the variables of a model with these options, by path.

    Of the blocks one is built, and of each stage of a ResNet two units: the others are alike.
    """
    smaller, copies = {}, {}
    if is_resnet(options):
        units = options["stages"]
        smaller["stages"] = tuple(min(n, 2) for n in units)
    else:
        units = options.get("resnet_stages") or ()
        smaller["depth"] = 1
        copies["block_0/"] = [f"block_{index}/" for index in range(1, options["depth"])]
        if units:
            smaller["resnet_stages"] = tuple(min(n, 2) for n in units)
    for s, n in enumerate(units, start=1):
        copies[f"stage_{s}_unit_2/"] = [f"stage_{s}_unit_{u}/" for u in range(3, n + 1)]
    model = make_model({**options, **smaller})
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    for path, shape in list(shapes.items()):
        layer = path.partition("/")[0] + "/"
        shapes |= {path.replace(layer, copy, 1): shape for copy in copies.get(layer, ())}
    return shapes
