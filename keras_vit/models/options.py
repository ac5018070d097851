"""Options of `vision_transformer` and `resnet`: what they build, and which variant they are."""

import inspect

from keras_vit.core.arguments import as_pair
from keras_vit.models.checks import has_class_token
from keras_vit.models.resnet import resnet
from keras_vit.models.variants import VARIANTS, ResNetVariant, Variant, is_resnet
from keras_vit.models.vit import vision_transformer

# Options that only change training.
DROPOUT_OPTIONS = ("dropout", "attention_dropout", "stochastic_depth")
# Options that the name of a builder does not determine.
_SIZES = ("num_classes", "image_size", "name", "dtype", "remat", "attention_path")


def build_model(options):
    """Build the model of these options."""
    return maker(options)(**options)


def defaults_of(options):
    """Return the default of each option of the family, `None` for required ones."""
    parameters = inspect.signature(maker(options)).parameters.values()
    defaults = {p.name: None if p.default is p.empty else p.default for p in parameters}
    if not is_resnet(options):
        # These depend on other options.
        pooling, axial = options.get("pooling", "token"), options.get("axial", False)
        defaults["class_token"] = has_class_token(pooling, axial)
        defaults["patch_bias"] = not options.get("pre_norm")
        defaults["key_bias"] = options.get("qkv_bias", True)
    return defaults


def maker(options):
    """Return the function that builds models with these options."""
    return resnet if is_resnet(options) else vision_transformer


def variable_shapes(options):
    """Return the shapes of the variables of a model with these options, by path.

    Only one block, and two units per stage of a ResNet, are built: the others are like them.
    """
    smaller, copies = {"num_classes": min(options["num_classes"], 1)}, {}
    if is_resnet(options):
        units = options["stages"]
        smaller["stages"] = tuple(min(n, 2) for n in units)
    else:
        units = options.get("resnet_stages") or ()
        smaller["depth"] = 1
        indices = range(1, options["depth"])
        copies["block_0/"] = [f"block_{index}/" for index in indices]
        if options.get("position_placement") == "every_layer":
            copies["position_embedding/"] = [f"position_embedding_{index}/" for index in indices]
        if units:
            smaller["resnet_stages"] = tuple(min(n, 2) for n in units)
    for s, n in enumerate(units, start=1):
        copies[f"stage_{s}_unit_2/"] = [f"stage_{s}_unit_{u}/" for u in range(3, n + 1)]
    model = build_model({**options, **smaller})
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    for path, shape in shapes.items():
        if path.startswith("head/"):
            shapes[path] = (*shape[:-1], options["num_classes"])
    for path, shape in list(shapes.items()):
        layer = path.partition("/")[0] + "/"
        shapes |= {path.replace(layer, copy, 1): shape for copy in copies.get(layer, ())}
    return shapes


def match_variant(options: dict) -> Variant | ResNetVariant | None:
    """Return the variant with the architecture of these options, or `None`."""
    return next((row for row in VARIANTS if not architecture_differences(row, options)), None)


def architecture_differences(row: Variant | ResNetVariant, options: dict) -> dict:
    """Compare options with the architecture of a variant.

    Return a dictionary from the names of options that differ to pairs: the option, and that of the
    variant. If one is a ResNet and the other a Transformer, its only key is `"family"`.
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
    """Compare options with the defaults, apart from classes, image size and the variant `row`.

    Return a dictionary from names to pairs, the option and its default.

    Example:
    >>> from keras_vit.models.introspection import options_of
    >>> changed_options(options_of(keras_vit.ViT_Ti16(pooling="gap")), keras_vit.list_variants()[0])
    {'pooling': ('gap', 'token')}
    """
    defaults = defaults_of(options)
    left_out = (*_SIZES, *(row.architecture if row else ()))
    return {
        name: (value, defaults[name])
        for name, value in options.items()
        if name not in left_out and value != defaults[name]
    }
