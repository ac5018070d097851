"""The layouts of the image towers of SigLIP and SigLIP 2 in transformers.

Files contain only the image tower, or both the image tower and the text tower. Models of SigLIP 2
with a fixed image size have the layout of SigLIP. The other models of SigLIP 2 (NaFlex) take any
grid of patches, and store the kernel of the patch projection as a matrix. This package reads them
as models with one grid, by default a square grid.
"""

import functools
import math

from keras_vit.checkpoints.architecture import check_setting, grid_of, not_square
from keras_vit.checkpoints.configuration import naflex_preprocessor_of, preprocessor_of
from keras_vit.checkpoints.formats.transformers.clip import (
    BLOCK_ROWS,
    CLASS_TOKEN,
    PATCHES,
    tower_finder,
    tower_settings,
    written_tower_name,
)
from keras_vit.checkpoints.formats.transformers.common import (
    Defaults,
    describe_encoder,
    settings_of,
    transformers_format,
)
from keras_vit.checkpoints.weight_map import POSITIONS, Row, packed, torch_layer, torch_norm
from keras_vit.core.arguments import as_pair

BIAS = "embeddings.patch_embedding.bias"
# The default of `patch_size` in transformers' `Siglip2VisionConfig`.
DEFAULT_PATCH_SIZE = 16


def _rows(kernel):
    """Return the weight map; `kernel` is the transform of the patch projection's kernel."""
    return (
        *torch_layer("embeddings.patch_embedding.", "patch_embedding/projection", kernel),
        Row("embeddings.position_embedding.weight", POSITIONS, "flat_positions"),
        *BLOCK_ROWS,
        Row("head.probe", "pooling/probe"),
        *packed("head.attention.in_proj_", "pooling/attention"),
        *torch_layer("head.attention.out_proj.", "pooling/attention/output"),
        *torch_norm("head.layernorm.", "pooling/layer_norm"),
        *torch_layer("head.mlp.fc1.", "pooling/mlp/dense_0"),
        *torch_layer("head.mlp.fc2.", "pooling/mlp/dense_1"),
        *torch_layer("classifier.", "head"),
    )


def _describe(defaults, is_flat, shape_of, config, num_heads):
    settings = tower_settings(config)
    has_probe = shape_of("pooling/probe") is not None

    def shape_of_kernel(path):
        shape = shape_of(path)
        if not is_flat or path != "patch_embedding/projection/kernel":
            return shape
        return _unflattened(shape, settings)

    fields = {"pooling": "map" if has_probe else "gap", "class_token": False}
    options = describe_encoder(shape_of_kernel, config, num_heads, defaults, settings, **fields)
    if not options.num_classes:
        check_setting(settings, "vision_use_head", has_probe)
    return options


def _unflattened(shape, settings):
    """Return the shape of a kernel `(out, in, height, width)` that is stored as a matrix."""
    filters, size = shape
    patch_size = settings.get("patch_size", DEFAULT_PATCH_SIZE)
    if not settings:
        # Without a config.json, square patches of RGB images are assumed.
        patch_size = max(1, math.isqrt(size // 3))
    height, width = as_pair(patch_size, "patch_size")
    return filters, size // (height * width), height, width


def _config_of(model, model_type, is_flat, options):
    settings = {
        **settings_of(options),
        "intermediate_size": options.mlp_dim,
        "attention_dropout": options.attention_dropout,
        "vision_use_head": options.pooling == "map",
    }
    if is_flat:
        del settings["image_size"]
        # The image size may include a border that does not fill a patch, which is cut off.
        settings["num_patches"] = math.prod(grid_of(options.image_size, options.patch_size))
    architecture, kind = f"{model}VisionModel", f"{model_type}_vision_model"
    if options.num_classes:
        architecture = f"{model}ForImageClassification"
        settings = {"vision_config": {"model_type": kind, **settings}}
        kind = model_type
    return architecture, kind, settings


def _size_of_patches(config):
    """Return the image size for the square grid of positions in a NaFlex file."""
    settings = tower_settings(config)
    if not settings.get("num_patches"):
        return None
    patch_size = as_pair(settings.get("patch_size", DEFAULT_PATCH_SIZE), "patch_size")
    return tuple(math.isqrt(settings["num_patches"]) * size for size in patch_size)


def _layout(model, models, is_flat, **fields):
    """Return the row of SigLIP or SigLIP 2; with `is_flat`, files store kernels as a matrix."""
    model_type = model.lower()
    model_types = f"{model_type}_vision_model", model_type
    defaults = Defaults(model_types, epsilon=1e-6, activation="gelu_pytorch_tanh")
    find_tower = tower_finder([PATCHES, BIAS], r"head\.", absent=[CLASS_TOKEN])

    def find(shapes):
        naming = find_tower(shapes)
        fits = naming is not None and (len(naming.shapes[PATCHES]) == 2) == is_flat
        return naming if fits else None

    return transformers_format(
        f"huggingface_{model_type}",
        _rows("flat_patches" if is_flat else "convolution"),
        f"`huggingface_{model_type}`: `.safetensors` of {models}, all but the classifier under "
        "`vision_model.`",
        find,
        functools.partial(_describe, defaults, is_flat),
        defaults,
        functools.partial(_config_of, model, model_type, is_flat),
        naflex_preprocessor_of if is_flat else preprocessor_of,
        models=(f"{model}VisionModel", f"{model}ForImageClassification"),
        read_only_models=(f"{model}Model",),
        refused=not_square,
        written_name=written_tower_name,
        **fields,
    )


SIGLIP = _layout(
    "Siglip",
    "SigLIP and SigLIP 2",
    is_flat=False,
    configured_size=lambda config: tower_settings(config).get("image_size"),
    interpolation="cubic",
)
SIGLIP2 = _layout(
    "Siglip2",
    "SigLIP 2 for any grid (NaFlex)",
    is_flat=True,
    configured_size=_size_of_patches,
    interpolation="linear",
)
