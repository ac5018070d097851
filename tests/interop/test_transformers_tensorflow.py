"""Files of and for the real transformers before version 5, on TensorFlow."""

import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vit

CASES = ("classifier", "second_of_its_kind", "ignored_setting", "backbone")
READ_ONLY_CASES = ("deit", "deit_backbone", "deit_with_teacher", "mae", "mae_with_decoder")
PROGRAM = pathlib.Path(__file__).parents[1] / "fixtures" / "peers" / "tensorflow_vit.py"
# Its environment, which `nox -s interop` makes next to the one of the tests.
PYTHON = pathlib.Path(f"{sys.prefix}-transformers4", "bin", "python")


def call(*arguments):
    result = subprocess.run([PYTHON, PROGRAM, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-1000:]


def stored(directory):
    with np.load(directory / "outputs.npz") as file:
        return file["pixels"], file["outputs"]


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


@pytest.mark.parametrize("case", CASES + READ_ONLY_CASES)
def test_theirs_is_read(case, theirs):
    model = keras_vit.from_checkpoint(theirs / case)
    pixels, expected = stored(theirs / case)
    outputs = keras.ops.convert_to_numpy(model(keras_vit.preprocess(pixels)))
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=5e-5)
    if case == "classifier":
        assert model.class_names[1:3] == ("goldfish", "great white shark")


@pytest.mark.parametrize("part", ["whole", "parts"])
@pytest.mark.parametrize("case", CASES + READ_ONLY_CASES)
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
