"""Interpolated position embeddings, against the original, timm's torch call and SciPy."""

import numpy as np
import pytest
import scipy.interpolate
import scipy.ndimage

from keras_vit.models import resize_position_embedding
from keras_vit.models.interpolation import resize_relative_embedding
from tests.fixtures.reference import DATA, read_npz


def random_table(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.parametrize(("key", "prefix"), [("cls_4x4_to_6x6", 1), ("nocls_4x4_to_6x6", 0)])
def test_stored_tables(key, prefix):
    table = read_npz("h5_posemb_tables_6x6.ckpt.npz")[key]
    resized = resize_position_embedding(table, (6, 6), num_prefix_tokens=prefix)
    expected = read_npz("h5_posemb_tables_6x6.io.npz")[key]
    np.testing.assert_allclose(resized, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"), [((7, 14), (12, 24)), ((24, 4), (14, 1)), ((1, 2), (3, 37))], ids=str
)
def test_bilinear_is_scipys_zoom(old, new):
    # Sizes without SciPy's artefact at the edge.
    grid = random_table(*old, 5)
    zoom = (new[0] / old[0], new[1] / old[1], 1)
    expected = scipy.ndimage.zoom(grid, zoom, order=1)
    resized = resize_position_embedding(grid.reshape(1, -1, 5), new, old, num_prefix_tokens=0)
    np.testing.assert_allclose(resized.reshape(*new, 5), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [(28, 14), (16, 30)])
def test_no_zeros_at_the_edge(old, new):
    """NUMERICS 5.5: SciPy's default loses the last row and column of these sizes."""
    grid = random_table(old, old, 2)
    lossy = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)
    assert not lossy[-1].any()
    resized = resize_position_embedding(grid.reshape(1, -1, 2), (new, new), num_prefix_tokens=0)
    resized = resized.reshape(new, new, 2)
    np.testing.assert_allclose(resized[:-1, :-1], lossy[:-1, :-1], rtol=0, atol=1e-6)
    # Corner-aligned: the corners are the old corners.
    np.testing.assert_allclose(
        resized[[0, 0, -1, -1], [0, -1, 0, -1]], grid[[0, 0, -1, -1], [0, -1, 0, -1]], atol=1e-6
    )


def test_same_number_of_patches_in_another_shape_is_interpolated():
    table = random_table(1, 16, 3)
    resized = resize_position_embedding(table, (4, 4), source_grid=(2, 8), num_prefix_tokens=0)
    assert not np.array_equal(resized, table)


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_prefix_and_dtype_are_kept(method):
    table = random_table(1, 2 + 9, 3)
    resized = resize_position_embedding(table, (5, 4), num_prefix_tokens=2, method=method)
    assert resized.shape == (1, 2 + 20, 3)
    assert resized.dtype == "float32"
    np.testing.assert_array_equal(resized[:, :2], table[:, :2])
    same = resize_position_embedding(table, (3, 3), num_prefix_tokens=2, method=method)
    np.testing.assert_array_equal(same, table)
    assert same is not table


BICUBIC_SIZES = [((4, 4), (6, 6)), ((14, 14), (24, 24)), ((24, 24), (14, 14)), ((7, 5), (3, 11))]


@pytest.mark.parametrize(("old", "new"), BICUBIC_SIZES, ids=str)
def test_bicubic_is_torchs(old, new):
    """Stored `torch.nn.functional.interpolate(mode="bicubic", antialias=True)`, in float64."""
    with np.load(DATA / "bicubic_torch.npz") as stored:
        expected = stored[f"{old}_{new}"]
    resized = resize_position_embedding(
        random_table(1, old[0] * old[1], 2), new, old, num_prefix_tokens=0, method="bicubic"
    )
    np.testing.assert_allclose(resized.reshape(*new, 2), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "nearest"}, "`method` must be one of"),
        ({"num_prefix_tokens": 0}, "`source_grid` must be given .* 17 patches"),
        ({"source_grid": (3, 5)}, "`source_grid` must be given .* 16 patches"),
    ],
)
def test_tables_of_another_grid_are_refused(arguments, message):
    table = random_table(1, 17, 3)
    with pytest.raises(ValueError, match=message):
        resize_position_embedding(**{"table": table, "target_grid": (6, 6), **arguments})


def pairs_of(grid):
    """The displacement in rows and columns of each pair of patches, and its offset."""
    places = np.argwhere(np.ones(grid))
    displacements = (places[:, None] - places).reshape(-1, 2)
    numbers = np.arange(len(places))
    return displacements, (numbers[:, None] - numbers).ravel()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((4, 4), (6, 6)),
        ((2, 5), (5, 2)),
        ((6, 3), (2, 2)),
        ((3, 1), (4, 5)),
        ((2, 8), (4, 4)),
        ((4, 3), (4, 3)),
    ],
)
def test_relative_embeddings_pair_by_pair(source, target):
    """The mean, over the pairs of an offset, of the table at their place in the old grid."""
    num_patches = source[0] * source[1]
    table = random_table(2 * num_patches - 1, 3).astype("float64")
    axes = [np.arange(1 - size, size) for size in source]
    offsets = axes[0][:, None] * source[1] + axes[1]
    values = table[num_patches - 1 - offsets]
    displacements, targets = pairs_of(target)
    scales = [(s - 1) / max(t - 1, 1) for s, t in zip(source, target, strict=True)]
    places = displacements * scales
    if source[1] == 1:
        # SciPy needs two places on each axis.
        values, axes[1] = np.repeat(values, 2, axis=1), np.arange(2)
    found = scipy.interpolate.interpn(axes, values, places)
    resized = resize_relative_embedding(table, source, target)
    last = target[0] * target[1] - 1
    assert len(resized) == 2 * last + 1
    for offset in range(-last, last + 1):
        expected = found[targets == offset].mean(axis=0)
        np.testing.assert_allclose(resized[last - offset], expected, rtol=0, atol=1e-12)
