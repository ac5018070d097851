"""Every ViT architecture of timm: ours computes the same function, or refuses the file."""

import pytest
import torch

from keras_vit.checkpoints.formats import recognize
from keras_vit.checkpoints.matching import mismatches
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.weight_map import entries
from tests.checkpoints.test_manifests import variable_shapes

ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu"}


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
    mlp_activation = type(model.blocks[0].mlp.act).__name__
    last_norm = model.fc_norm if isinstance(model.norm, torch.nn.Identity) else model.norm
    pooling = {"avg": "gap"}.get(model.global_pool, model.global_pool)
    return {
        "block": block,
        "num_heads": model.blocks[0].attn.num_heads,
        "activation": ACTIVATIONS.get(mlp_activation, mlp_activation),
        "epsilon": last_norm.eps,
        "pooling": pooling,
        "fc_norm": isinstance(model.norm, torch.nn.Identity),
        "pool_include_prefix": model.pool_include_prefix and model.num_prefix_tokens > 0,
        "image_size": tuple(model.patch_embed.img_size),
    }


def accepted_options(hub):
    """The options that the file is read with, or `None` if it is refused."""
    try:
        checkpoint = CheckpointReader(hub, *recognize(hub, "timm"))
        options = checkpoint.options()
        shapes = variable_shapes(options)
    except ValueError:
        return None
    found, without_row = entries(checkpoint.format.rows, shapes)
    fits = not mismatches(checkpoint, found, shapes, fits_positions=True, drop_head=False)
    return options if fits and not without_row else None


def test_every_architecture(timm):
    accepted, different = [], []
    for name in timm.list_models(module="vision_transformer"):
        with torch.device("meta"):
            model = timm.create_model(name, depth=1)
        options = accepted_options(Hub(name, model))
        if options is None:
            continue
        accepted.append(name)
        theirs = function_of(model)
        ours = {
            **{key: options.get(key) for key in theirs},
            "block": "Block",
            "pool_include_prefix": False,
        }
        patch = options["patch_size"][0]
        theirs["image_size"] = tuple(size // patch * patch for size in theirs["image_size"])
        if ours != theirs:
            different.append((name, ours, theirs))
    assert not different
    assert len(accepted) > 100
    assert {"vit_base_patch16_224", "vit_base_patch16_clip_224"} <= set(accepted)


@pytest.mark.parametrize(
    "name", ["vit_base_patch16_rpn_224", "vit_base_patch16_xp_224", "vit_giant_patch14_dinov2"]
)
def test_other_functions_are_refused(timm, name):
    with torch.device("meta"):
        model = timm.create_model(name, depth=1)
    assert accepted_options(Hub(name, model)) is None
