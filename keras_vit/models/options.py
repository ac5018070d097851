"""The options of `vision_transformer` and `resnet`: what they build, and which row they are."""

import inspect

from keras_vit.core.arguments import as_pair
from keras_vit.layers.patches import grid_size
from keras_vit.models.resnet import resnet
from keras_vit.models.variants import VARIANTS, ResNetVariant
from keras_vit.models.vit import total_stride, vision_transformer

# Options that change training alone.
DROPOUT_OPTIONS = ("dropout", "attention_dropout", "stochastic_depth")
# Options that a builder's name leaves open.
_SIZES = ("num_classes", "image_size", "name", "dtype", "remat")


def is_resnet(options):
    """Whether the options are those of `resnet`, which has no Transformer."""
    return "stages" in options


def make_model(options):
    """The model that these options build."""
    return _maker(options)(**options)


def defaults_of(options):
    """What the options of this family are where none is given, `None` for those that must be."""
    parameters = inspect.signature(_maker(options)).parameters.values()
    return {p.name: None if p.default is p.empty else p.default for p in parameters}


def _maker(options):
    return resnet if is_resnet(options) else vision_transformer


def token_grid_of(options):
    """`(rows, columns)` of the patches of a model with these options, or `None` for a ResNet."""
    if is_resnet(options):
        return None
    stride = total_stride(options["patch_size"], options.get("resnet_stages"))
    return grid_size(options["image_size"], stride)


def variable_shapes(options):
    """Shapes of the variables of a model with these options, by path.

    Of the blocks one is built, and of each stage of a ResNet two units: the others are alike.
    """
    smaller, copies = {"num_classes": min(options["num_classes"], 1)}, {}
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
    for path in ("head/kernel", "head/bias"):
        if path in shapes:
            shapes[path] = (*shapes[path][:-1], options["num_classes"])
    for path, shape in list(shapes.items()):
        layer = path.partition("/")[0] + "/"
        shapes |= {path.replace(layer, copy, 1): shape for copy in copies.get(layer, ())}
    return shapes


def match_variant(options):
    """The row with the architecture of these options, or `None`.

    Args:
        options: of `vision_transformer` or `resnet`, all that have no default.
    """
    return next((row for row in VARIANTS if not architecture_differences(row, options)), None)


def architecture_differences(row, options):
    """What of the options is not the row's architecture.

    Args:
        row: of the table.
        options: as in `match_variant`.

    Returns:
        A dictionary from names of options to pairs, the option and what the row has; of the name
        `"family"` if the one is a ResNet and the other a Transformer.
    """
    if is_resnet(options) != isinstance(row, ResNetVariant):
        families = ("a Vision Transformer", "a ResNet")
        return {"family": families[::-1] if is_resnet(options) else families}
    different, said = {}, {**defaults_of(options), **options}
    for name, wanted in row.architecture.items():
        actual = said[name]
        if name == "patch_size":
            actual, wanted = as_pair(actual, name), as_pair(wanted, name)
        if actual != wanted:
            different[name] = (actual, wanted)
    return different


def changed_options(options, row=None):
    """Compare options with the defaults, apart from classes and image size.

    Args:
        options: of `vision_transformer` or `resnet`.
        row: of the table of variants, whose architecture is left out.

    Returns:
        A dictionary from names to pairs, the option and its default.

    Example:
    >>> from keras_vit.models.describe import describe
    >>> changed_options(describe(keras_vit.ViT_Ti16(pooling="gap")), keras_vit.list_variants()[0])
    {'pooling': ('gap', 'token')}
    """
    defaults = defaults_of(options)
    if not is_resnet(options):
        defaults["class_token"] = options.get("pooling", "token") in ("token", None)
    left_out = (*_SIZES, *(row.architecture if row else ()))
    return {
        name: (value, defaults[name])
        for name, value in options.items()
        if name not in left_out and value != defaults[name]
    }
