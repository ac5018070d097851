"""Files with the names, shapes and dtypes of the released models."""

import gzip
import json
import math

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import from_checkpoint
from keras_vit.checkpoints.archives import ArrayArchive
from keras_vit.checkpoints.formats import recognize
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.weight_map import entries
from keras_vit.models import VARIANTS, match_variant
from keras_vit.models.options import is_resnet
from keras_vit.models.vit import variable_shapes
from tests.fixtures.reference import DATA

MANIFESTS = json.loads(gzip.decompress((DATA / "manifests.json.gz").read_bytes()))
# The originals' names of the models that have a builder here.
VARIANT_NAMES = {
    row.name.removeprefix("ViT_").removeprefix("BiT_").replace("_", ""): row.name
    for row in VARIANTS
} | {"g-opt16": "ViT_giantopt16"}
PROJECTS = {"vit_jax": "google", "bit": "big_transfer", "bit_v1": "big_vision"}


def name_of(manifest):
    label = manifest["label"].replace(" (difference to the first variant)", "")
    return f"{manifest['manifest']}: {label}"


def size_of(manifest):
    return sum(math.prod(shape) for shape in manifest["params"].values())


def builder_of(manifest):
    """The builder's name, from the original's: `vit_jax__ViT-B_16-gap-norep` is ViT_B16."""
    project, _, original = manifest["manifest"].partition("__")
    if project == "bit_v1":
        return None
    return VARIANT_NAMES.get(
        original.removesuffix("-gap-norep").replace("ViT-", "").replace("_", "")
    )


def pooling_of(manifest):
    """The pooling that the original's configuration says."""
    config, label = manifest["config"], manifest["label"]
    if "classifier" in config:
        return config["classifier"]
    return next((p for p in ("tok", "map") if f"pool {p}" in label), "gap").replace("tok", "token")


class Shapes:
    """An archive with shapes, but without arrays."""

    def __init__(self, manifest):
        self.path = name_of(manifest)
        self.config, self.preprocessor = {}, {}
        self.shapes = {name: tuple(shape) for name, shape in manifest["params"].items()}


def shapes_of(options):
    """Shapes of the model's variables by path; nothing is allocated."""
    with keras.StatelessScope(initialize_variables=False):
        shapes = variable_shapes(options)
    keras.utils.clear_session(free_memory=False)
    return shapes


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_recognized_and_complete(manifest):
    """Every array is used and every variable filled, shape by shape; nothing is allocated."""
    archive = Shapes(manifest)
    checkpoint = CheckpointReader(archive, *recognize(archive))
    project = manifest["manifest"].partition("__")[0]
    assert checkpoint.format.name == PROJECTS.get(project, project)
    options = checkpoint.options()
    row = match_variant(options)
    assert (row.name if row else None) == builder_of(manifest)
    shapes = shapes_of(options)
    checkpoint.match("model", shapes, options.grid, getattr(options, "num_heads", None))
    if is_resnet(options):
        assert sum(map(math.prod, shapes.values())) == size_of(manifest)
        return
    assert options.pooling == pooling_of(manifest)
    has_no_position = options.class_token and checkpoint.format.name == "big_vision"
    # big_vision's class token has no position; ours is one at zero.
    added = has_no_position * options.embedding_dim
    assert sum(map(math.prod, shapes.values())) == size_of(manifest) + added
    if options.position_embedding == "learned":
        patch = options.stride[0]
        assert options.image_size == (manifest["image_size"] // patch * patch,) * 2


def _mark(manifest):
    """Larger ones than Ti/16 are tests of large models; by default the first of a project runs."""
    if size_of(manifest) >= 6.4e6:
        return pytest.mark.large
    project = manifest["manifest"].partition("__")[0]
    first = next(
        m for m in MANIFESTS if m["manifest"].startswith(f"{project}__") and size_of(m) < 6.4e6
    )
    return () if manifest is first else pytest.mark.slow


# Up to B/16.
LOADED = [pytest.param(m, marks=_mark(m), id=name_of(m)) for m in MANIFESTS if size_of(m) < 110e6]


@pytest.mark.parametrize("manifest", LOADED)
def test_loaded_in_full(manifest, tmp_path):
    """A file of random values ends up in the model, each array in its variable, bit for bit."""
    path = tmp_path / "random.npz"
    arrays = random_arrays(manifest["params"])
    np.savez(path, **arrays)
    model = from_checkpoint(path)
    path.unlink()
    archive = ArrayArchive(path, arrays, {})
    checkpoint = CheckpointReader(archive, *recognize(archive))
    values = {variable.path: variable.value for variable in model.weights}
    found, without_row = entries(checkpoint.format.rows, values)
    assert not without_row
    assert sorted(checkpoint.naming.sources) == sorted(entry.source for entry in found)
    for entry in found:
        (target,) = entry.targets
        stored = arrays[checkpoint.naming.sources[entry.source].name]
        value = keras.ops.convert_to_numpy(values[target])
        if value.size == stored.size:
            stored = stored.reshape(value.shape)
        if value.shape != stored.shape:
            assert target == "position_embedding/embedding"
            assert not value[:, 0].any()
            value = value[:, 1:]
        np.testing.assert_array_equal(value, stored, err_msg=target)


def random_arrays(shapes):
    """Cheap random values, different in each array."""
    values = np.random.default_rng(0).normal(size=1_000_003).astype("float32")
    return {
        name: np.resize(np.roll(values, -index), shape)
        for index, (name, shape) in enumerate(shapes.items())
    }
