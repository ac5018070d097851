"""The maps of dense models equal those of timm's, transformers' and torch's modules."""

import keras
import numpy as np
import pytest
import torch
from keras import ops

import keras_vit
from tests.fixtures.contract import randomise as randomise_ours
from tests.fixtures.peers.torch_models import randomise

WIDTH, CHANNELS = 48, 24
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 64, 96, 3)).astype("float32")
TOLERANCE = 5e-5


def ours_of(kind, **options):
    model = keras_vit.vision_transformer(
        patch_size=16,
        embedding_dim=WIDTH,
        depth=4,
        num_heads=4,
        mlp_dim=96,
        image_size=(64, 96),
        **options,
    )
    maps = keras_vit.backbone(model, kind=kind, channels=CHANNELS)
    randomise_ours(maps)
    return maps


def arrays(maps):
    return {name: ops.convert_to_numpy(x) for name, x in maps.items()}


def as_torch(maps):
    return torch.from_numpy(np.moveaxis(np.array(maps), -1, 1).copy())


def assert_equal(actual, expected):
    expected = np.moveaxis(expected.detach().numpy(), 1, -1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


def pyramid_of_torch(level):
    """A level of detectron2's `SimpleFeaturePyramid`, and pairs of its parts and ours."""
    from transformers.models.vitdet.modeling_vitdet import VitDetLayerNorm

    nn, half, quarter = torch.nn, WIDTH // 2, WIDTH // 4
    up = nn.ConvTranspose2d(WIDTH, half, 2, 2)
    again = nn.ConvTranspose2d(half, quarter, 2, 2)
    before, parts = {
        "P2": (quarter, [up, VitDetLayerNorm(half), nn.GELU(), again]),
        "P3": (half, [up]),
        "P4": (WIDTH, []),
        "P5": (WIDTH, [nn.MaxPool2d(2, 2)]),
    }[level]
    parts += [nn.Conv2d(before, CHANNELS, 1, bias=False), VitDetLayerNorm(CHANNELS)]
    parts += [
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        VitDetLayerNorm(CHANNELS),
    ]
    return randomise(nn.Sequential(*parts))


def layers_of(model, level):
    """Return our layers of a level that have weights, in their order."""
    return [layer for layer in model.layers if layer.name.startswith(level) and layer.weights]


def pairs_of(ours, theirs):
    """Yield variables of ours and tensors of theirs, in their order."""
    modules = [
        module
        for module in theirs.modules()
        if next(iter(module.parameters(False)), None) is not None
    ]
    for layer, module in zip(ours, modules, strict=True):
        yield from zip(layer.weights, module.parameters(recurse=False), strict=True)


def to_ours(tensor):
    # The order of convolutions' axes is the reverse here, that of transposed ones is, too.
    order = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}[tensor.ndim]
    return tensor.detach().numpy().transpose(order)


def copy_from_torch(ours, theirs):
    for variable, tensor in pairs_of(ours, theirs):
        variable.assign(to_ours(tensor))


@pytest.mark.parametrize("level", ["P2", "P3", "P4", "P5"])
def test_simple_pyramid(level):
    model = ours_of("simple")
    theirs = pyramid_of_torch(level)
    copy_from_torch(layers_of(model, level), theirs)
    patches = ops.convert_to_numpy(patches_of(model, "block_3")(IMAGES))
    with torch.no_grad():
        expected = theirs(as_torch(patches))
    assert_equal(arrays(model(IMAGES))[level], expected)


def patches_of(model, name):
    """A model from images to the map of a block's patches."""
    tokens = model.get_layer(name).output
    return keras.Model(model.input, keras.layers.Reshape((4, 6, WIDTH))(tokens[:, -24:]))


@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_reassembly(pooling):
    from transformers import DPTConfig
    from transformers.models.dpt.modeling_dpt import DPTReassembleStage

    model = ours_of("dpt", pooling=pooling)
    config = DPTConfig(
        hidden_size=WIDTH,
        neck_hidden_sizes=[CHANNELS] * 4,
        reassemble_factors=[4, 2, 1, 0.5],
        readout_type="project" if pooling == "token" else "ignore",
        neck_ignore_stages=[],
    )
    theirs = randomise(DPTReassembleStage(config))
    for index, level in enumerate(("P2", "P3", "P4", "P5")):
        modules = [theirs.layers[index]]
        if pooling == "token":
            modules.insert(0, theirs.readout_projects[index])
        copy_from_torch(layers_of(model, level), torch.nn.ModuleList(modules))
    blocks = [model.get_layer(f"block_{index}").output for index in range(4)]
    tokens = [ops.convert_to_numpy(x) for x in keras.Model(model.input, blocks)(IMAGES)]
    if pooling == "gap":
        # They always leave out a first token.
        tokens = [np.concatenate([x[:, :1], x], 1) for x in tokens]
    with torch.no_grad():
        expected = theirs([torch.from_numpy(x.copy()) for x in tokens], 4, 6)
    found = arrays(model(IMAGES))
    for level, maps in zip(("P2", "P3", "P4", "P5"), expected, strict=True):
        assert_equal(found[level], maps)


@pytest.mark.parametrize(
    "name", ["vit_base_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_base_patch16_siglip_224"]
)
def test_blocks(timm, name, tmp_path):
    sizes = {"patch_size": 16, "embed_dim": WIDTH, "depth": 4, "num_heads": 4}
    options = {"img_size": (64, 96), **sizes}
    theirs = randomise(timm.create_model(name, num_classes=0, **options))
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True, model_args=options)
    ours = keras_vit.backbone(keras_vit.from_checkpoint(tmp_path), kind="blocks")
    mean, deviation = (np.array(theirs.pretrained_cfg[name]) for name in ("mean", "std"))
    images = ((IMAGES + 1) / 2 - mean) / deviation
    with torch.no_grad():
        expected = theirs.forward_intermediates(
            as_torch(images.astype("float32")), indices=4, norm=False, intermediates_only=True
        )
    found = arrays(ours(IMAGES))
    assert sorted(found) == ["block_0", "block_1", "block_2", "block_3"]
    for index, maps in enumerate(expected):
        assert_equal(found[f"block_{index}"], maps)
