"""Files of and for the real transformers before version 5, on TensorFlow."""

import pathlib
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest

import keras_vit

CASES = ("classifier", "second_of_its_kind", "ignored_setting", "backbone")
PROGRAM = pathlib.Path(__file__).parents[1] / "fixtures" / "peers" / "tensorflow_vit.py"
# Its environment, which `nox -s interop` makes next to the one of the tests.
PYTHON = pathlib.Path(f"{sys.prefix}-transformers4", "bin", "python")


def call(*arguments):
    result = subprocess.run([PYTHON, PROGRAM, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-1000:]


def stored(directory):
    with np.load(directory / "outputs.npz") as file:
        return file["pixels"], file["outputs"]


def arrays_of(path):
    """Arrays by name, without the name of the model."""
    arrays = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            layer, _, rest = name.split("/", 2)
            arrays[layer, rest] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return arrays


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs")
    call("write", folder)
    return folder


@pytest.fixture(scope="module")
def written_back(theirs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    for case in CASES:
        model = keras_vit.from_checkpoint(theirs / case)
        keras_vit.save_checkpoint(model, folder / case, format="huggingface_tf")
    call("run", folder)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_theirs_is_read(case, theirs):
    model = keras_vit.from_checkpoint(theirs / case)
    pixels, expected = stored(theirs / case)
    outputs = keras.ops.convert_to_numpy(model(keras_vit.preprocess(pixels)))
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=5e-5)
    if case == "classifier":
        assert model.class_names[1:3] == ("goldfish", "great white shark")


@pytest.mark.parametrize("part", ["whole", "parts"])
@pytest.mark.parametrize("case", CASES)
def test_their_safetensors_are_read(case, part, theirs):
    assert len(list((theirs / case / part).glob("*.safetensors"))) > (part == "parts")
    model, same = (keras_vit.from_checkpoint(theirs / case / name) for name in (".", part))
    for variable, expected in zip(same.weights, model.weights, strict=True):
        assert variable.path == expected.path
        # It absorbs the settings of the processor, which are not next to them.
        if not variable.path.startswith("patch_embedding/"):
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (variable, expected)))


@pytest.mark.parametrize("case", CASES)
def test_ours_is_read(case, theirs, written_back):
    _, expected = stored(theirs / case)
    _, outputs = stored(written_back / case)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-5)
    original, written = (
        arrays_of(folder / case / "tf_model.h5") for folder in (theirs, written_back)
    )
    assert written.keys() == original.keys()
    for name, array in original.items():
        np.testing.assert_allclose(written[name], array, rtol=0, atol=1e-6)


def test_the_name_of_the_model_has_a_number(theirs):
    with h5py.File(theirs / "second_of_its_kind" / "tf_model.h5") as file:
        assert list(file["vit"]) == ["tf_vi_t_for_image_classification_1"]
