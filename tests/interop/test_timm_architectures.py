"""Every ViT architecture of timm: ours computes the same function, or refuses the file.

Also those of DeiT and EVA, which have other classes. The rows of the catalog for timm's
repositories agree with timm's own table.
"""

import pytest
import torch

from keras_vit.checkpoints.catalog.published import HUB_CHECKPOINTS
from keras_vit.checkpoints.formats import recognize
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.models import find_variant
from tests.checkpoints.test_manifests import shapes_of

ACTIVATIONS = {
    **{"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "SiLU": "silu"},
}
MODULES = ("vision_transformer", "deit", "eva")


class Hub:
    """What a directory of the hub holds: shapes of the arrays, and the architecture's name."""

    def __init__(self, name, model):
        self.path = name
        self.preprocessor = {}
        self.shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        self.config = {
            "architecture": name,
            "num_classes": model.num_classes,
            "global_pool": model.global_pool,
            "pretrained_cfg": {"input_size": [3, *model.patch_embed.img_size]},
        }


def function_of(model):
    """What of a timm model's function its arrays do not tell."""
    (block,) = {type(block).__name__ for block in model.blocks}
    mlp = model.blocks[0].mlp
    mlp_activation = type(mlp.act).__name__
    pooling = {"avg": "gap"}.get(model.global_pool, model.global_pool)
    norms = [type(norm).__name__ != "Identity" for norm in (model.norm, model.fc_norm)]
    includes_prefix = getattr(model, "pool_include_prefix", False) and model.num_prefix_tokens > 0
    rope = getattr(model, "rope", None)
    return {
        "block": block,
        "num_heads": model.blocks[0].attn.num_heads,
        "activation": ACTIVATIONS.get(mlp_activation, mlp_activation),
        "gated_mlp": type(mlp).__name__ in ("GluMlp", "SwiGLU"),
        # The gate is the first half.
        "gate_last": getattr(mlp, "gate_last", False),
        "epsilon": model.blocks[0].norm1.eps,
        "pooling": pooling,
        "fc_norm": norms[1],
        "final_norm": any(norms),
        "pool_include_prefix": includes_prefix,
        "image_size": tuple(model.patch_embed.img_size),
        "rope": rope and (type(rope).__name__, rope.temperature, rope.rotate_half),
    }


def accepted_options(hub):
    """The options that the file is read with, or `None` if it is refused."""
    try:
        checkpoint = CheckpointReader(hub, *recognize(hub, "timm"))
        options = checkpoint.options()
        checkpoint.match(hub.path, shapes_of(options), options.grid, options.num_heads)
    except ValueError:
        return None
    return options


def test_every_architecture(timm):
    accepted, different = [], []
    for name in [name for module in MODULES for name in timm.list_models(module=module)]:
        with torch.device("meta"):
            # These have one number of heads per block.
            model = timm.create_model(name, **({} if "sapiens2" in name else {"depth": 1}))
        options = accepted_options(Hub(name, model))
        if options is None:
            continue
        accepted.append(name)
        theirs = function_of(model)
        ours = {
            **{key: getattr(options, key) for key in theirs if hasattr(options, key)},
            "block": "EvaBlock" if theirs["rope"] else "Block",
            "pool_include_prefix": False,
            "gate_last": False,
            "rope": ("RotaryEmbeddingDinoV3", 100, True)
            if options.position_embedding == "rotary"
            else None,
        }
        patch = options.patch_size[0]
        theirs["image_size"] = tuple(size // patch * patch for size in theirs["image_size"])
        if ours != theirs:
            different.append((name, ours, theirs))
    assert not different
    assert len(accepted) > 100
    assert {
        *("vit_base_patch16_224", "vit_base_patch16_clip_224", "vit_giant_patch14_reg4_dinov2"),
        *("deit_base_distilled_patch16_224", "vit_7b_patch16_dinov3"),
    } <= set(accepted)


PREFIX = "hf://timm/"
ROWS = [row for row in HUB_CHECKPOINTS if row.url.startswith(PREFIX)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_of_timm(row, timm):
    name = row.url.removeprefix(PREFIX)
    config = timm.get_pretrained_cfg(name)
    assert config.hf_hub_id == f"timm/{name}"
    assert (config.license, config.num_classes) == (row.license, row.num_classes)
    assert tuple(config.input_size[1:]) == (row.image_size, row.image_size)
    with torch.device("meta"):
        model = timm.create_model(config.architecture, num_classes=row.num_classes)
    options = accepted_options(Hub(config.architecture, model))
    assert options.sizes == find_variant(row.variant).sizes
    assert (options.activation, options.pooling) == (row.activation, row.pooling)
