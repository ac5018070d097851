"""Models of the real torchvision, with random weights, in both directions; its published rows."""

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from keras import ops

import keras_vit
from keras_vit.checkpoints.archives import ArrayArchive
from keras_vit.checkpoints.catalog.published import TORCHVISION_CHECKPOINTS
from keras_vit.checkpoints.formats import recognize
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.models.variants import find_variant
from keras_vit.models.vit import variable_shapes
from tests.fixtures.contract import randomise as randomise_ours
from tests.fixtures.peers.torch_models import TOLERANCE, randomise, torch_images

IMAGES = np.random.default_rng(0).uniform(-1, 1, size=(2, 32, 32, 3)).astype("float32")
SIZES = {
    **{"image_size": 32, "patch_size": 8, "num_layers": 3, "num_heads": 4},
    **{"hidden_dim": 48, "mlp_dim": 96, "num_classes": 10},
}
HEADS = {"plain": None, "with_pre_logits": 16}
VARIANTS = [
    *(("vit_b_16", "ViT_B16"), ("vit_b_32", "ViT_B32"), ("vit_l_16", "ViT_L16")),
    *(("vit_l_32", "ViT_L32"), ("vit_h_14", "ViT_H14")),
]
WEIGHTS = [w for name, _ in VARIANTS for w in torchvision.models.get_model_weights(name)]


def model_of(representation_size):
    return torchvision.models.VisionTransformer(**SIZES, representation_size=representation_size)


def outputs_of(model):
    """Outputs for images in [-1, 1], normalized as in the presets of all published weights."""
    (preset,) = {(*w.transforms().mean, *w.transforms().std) for w in WEIGHTS}
    normalized = (((IMAGES + 1) / 2 - preset[:3]) / preset[3:]).astype("float32")
    with torch.no_grad():
        return model.eval()(torch_images(normalized)).numpy()


def check(actual, expected):
    np.testing.assert_allclose(ops.convert_to_numpy(actual), expected, rtol=0, atol=2 * TOLERANCE)


@pytest.mark.parametrize("representation_size", HEADS.values(), ids=HEADS)
def test_read_and_written_back(representation_size, tmp_path):
    theirs = randomise(model_of(representation_size))
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = keras_vit.from_checkpoint(tmp_path / "theirs.safetensors", num_heads=4)
    check(ours(IMAGES), outputs_of(theirs))
    keras_vit.save_checkpoint(ours, tmp_path / "ours.safetensors", "torchvision")
    written = safetensors.torch.load_file(tmp_path / "ours.safetensors")
    for name, tensor in theirs.state_dict().items():
        tolerance = 1e-6 if name.startswith("conv_proj") else 0
        torch.testing.assert_close(written.pop(name), tensor, rtol=0, atol=tolerance)
    assert not written


@pytest.mark.parametrize("representation_size", HEADS.values(), ids=HEADS)
def test_models_of_ours_are_read(representation_size, tmp_path):
    options = {"representation_size": representation_size, "activation": "gelu"}
    options |= {"patch_size": 8, "embedding_dim": 48, "depth": 3, "num_heads": 4, "mlp_dim": 96}
    ours = keras_vit.vision_transformer(**options, num_classes=10, image_size=32)
    randomise_ours(ours)
    keras_vit.save_checkpoint(ours, tmp_path / "ours.safetensors", "torchvision")
    theirs = model_of(representation_size)
    theirs.load_state_dict(safetensors.torch.load_file(tmp_path / "ours.safetensors"))
    check(ours(IMAGES), outputs_of(theirs))


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_published_architectures(name, variant):
    with torch.device("meta"):
        theirs = torchvision.models.get_model(name)
    archive = ArrayArchive("file", theirs.state_dict(), {})
    checkpoint = CheckpointReader(archive, *recognize(archive))
    options = checkpoint.options().resolved()
    expected = find_variant(variant).replace(image_size=224, num_classes=1000, activation="gelu")
    assert options.replace(name=variant) == expected.resolved()
    assert options.num_heads == theirs.encoder.layers[0].num_heads
    checkpoint.match(variant, variable_shapes(options), options.grid, options.num_heads)


def test_the_catalog():
    """Address, accuracy, crop, length before the crop, and interpolation of each row."""

    def theirs(weights):
        preset = weights.transforms()
        accuracy = weights.meta["_metrics"]["ImageNet-1K"]["acc@1"]
        sizes = *preset.crop_size, *preset.resize_size
        return weights.url, accuracy, *sizes, preset.interpolation.value, preset.antialias

    def ours(row):
        spec, size = row.image_spec, row.image_size
        sizes = size, spec.length_before_crop(size)
        return row.url, row.accuracy, *sizes, spec.interpolation, spec.antialias

    assert {*map(ours, TORCHVISION_CHECKPOINTS)} == {*map(theirs, WEIGHTS)}
