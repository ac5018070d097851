"""Files of torch.save: nested dictionaries, prefixes, shards, and what they may not contain."""

import argparse
import json
import logging
import pickle
import zipfile

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.archives import open_archive
from tests.fixtures.checkpoint_files import assert_refused
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import REFERENCE, assert_logits, case_outputs

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.backends("tensorflow", "jax", "torch")
CASE = "timm_in_pickle"


@pytest.fixture(scope="module")
def weights():
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(REFERENCE / f"{CASE}.pth", weights_only=True)["model"]


def logits(path, **options):
    model = keras_vit.from_checkpoint(path, num_heads=2, **options)
    return to_numpy(model(case_outputs(CASE)["images"]))


def assert_is_case(path, **options):
    assert_logits(logits(path, **options), case_outputs(CASE)["logits"])


def renamed(weights, prefix):
    return {f"{prefix}{name}": tensor for name, tensor in weights.items()}


def test_a_file_of_a_training_script():
    """It also holds the optimizer, numbers and an `argparse.Namespace`."""
    assert_is_case(REFERENCE / f"{CASE}.pth")


CONTENTS = {
    "state dict": lambda weights: weights,
    "Lightning": lambda weights: {
        "state_dict": {**renamed(weights, "model."), "loss.weight": torch.ones(3)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}}],
        "callbacks": {"best": np.float64(0.5)},
    },
    "compiled, in DDP": lambda weights: {"net": renamed(weights, "module._orig_mod.")},
    "teacher": lambda weights: {"teacher": renamed(weights, "backbone."), "epoch": 3},
}


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".ckpt"])
def test_suffixes(suffix, weights, tmp_path):
    torch.save(weights, tmp_path / f"x{suffix}")
    assert_is_case(tmp_path / f"x{suffix}")


@pytest.mark.parametrize("name", CONTENTS)
def test_weights_are_found_in_dictionaries_and_after_prefixes(name, weights, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    torch.save(CONTENTS[name](weights), tmp_path / "x.pth")
    assert_is_case(tmp_path / "x.pth")
    assert (name == "state dict") == ("whose names begin with" not in caplog.text)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype, weights, tmp_path):
    halves = {name: value.to(getattr(torch, dtype)) for name, value in weights.items()}
    torch.save(halves, tmp_path / "half.pth")
    torch.save({name: value.float() for name, value in halves.items()}, tmp_path / "x.pth")
    np.testing.assert_array_equal(logits(tmp_path / "half.pth"), logits(tmp_path / "x.pth"))
    assert keras_vit.checkpoints.inspect_checkpoint(tmp_path / "half.pth", 2).dtypes == (dtype,)


def test_the_format_before_torch_1_6(weights, tmp_path):
    torch.save(weights, tmp_path / "x.pth", _use_new_zipfile_serialization=False)
    assert_is_case(tmp_path / "x.pth")


def test_a_key_chooses_one_of_several_models(weights, tmp_path):
    doubled = {name: 2 * tensor for name, tensor in weights.items()}
    torch.save({"model": doubled, "model_ema": renamed(weights, "module.")}, tmp_path / "x.pth")
    assert_refused(tmp_path / "x.pth", "`key` must be 'model' or 'model_ema.module'")
    assert_is_case(tmp_path / "x.pth", key="model_ema")
    assert_refused(tmp_path / "x.pth", "of a known layout.*key='ema'", key="ema")


def test_shards_in_a_directory(weights, tmp_path):
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2])):
        torch.save({name: weights[name] for name in part}, tmp_path / f"{number}.bin")
    index = {name: f"{number % 2}.bin" for number, name in enumerate(names)}
    text = json.dumps({"weight_map": index})
    (tmp_path / "pytorch_model.bin.index.json").write_text(text)
    assert_is_case(tmp_path)


def test_a_directory_with_only_pickled_weights(weights, tmp_path):
    torch.save(weights, tmp_path / "pytorch_model.bin")
    assert_is_case(tmp_path)


class Runs:
    """A pickled object that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize("is_zip", [True, False])
def test_code_in_a_file_does_not_run(is_zip, weights, tmp_path):
    canary, path = tmp_path / "canary", tmp_path / "x.pth"
    contents = {"model": weights, "hook": Runs(canary)}
    torch.save(contents, path, _use_new_zipfile_serialization=is_zip)
    names = "builtins.exec" if is_zip else "other objects"
    assert_refused(path, f"only arrays and numbers.*, not {names}")
    path.write_bytes(pickle.dumps(Runs(canary)))
    assert_refused(path, "must be a complete file of arrays")
    assert not canary.exists()


def test_a_whole_module_is_refused_by_its_name(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pth")
    assert_refused(tmp_path / "x.pth", "state_dict.*, not torch.nn.modules.linear.Linear")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.load. received a zip file:UserWarning")
def test_torchscript_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "x.pt")
    assert_refused(tmp_path / "x.pt", "only arrays and numbers, as `torch.save.model.state_dict")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"head.weight": torch.ones(1).expand(10**9)}, "more than twice its size"),
        (dict.fromkeys(map(str, range(100)), torch.ones(1000)), "more than twice its size"),
        ({"x": bytearray(10)}, "must not hold a bytearray"),
    ],
    ids=["one number, repeated", "one array, many times", "bytes"],
)
def test_contents_that_would_fill_the_memory(contents, message, tmp_path):
    torch.save(contents, tmp_path / "x.pth")
    assert_refused(tmp_path / "x.pth", message)


def test_the_state_of_a_dtype_is_ignored(tmp_path):
    """NumPy would crash: the state says that the dtype of a number has Python objects."""

    def push(value):
        return pickle.dumps(value, 2)[2:-1]

    state = push((4, "<", None, None, None, -1, -1, 2, None))
    dtype = b"cnumpy\ndtype\n(" + push("f8") + b"tR" + state + b"b"
    number = b"cnumpy._core.multiarray\nscalar\n(" + dtype + b"tR"
    torch.save({"x": np.float64(1)}, tmp_path / "x.pth")
    with zipfile.ZipFile(tmp_path / "x.pth") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        for name, content in members.items():
            is_pickle = name.endswith("data.pkl")
            program = b"\x80\x02}" + push("x") + number + b"s."
            archive.writestr(name, program if is_pickle else content)
    assert open_archive(tmp_path / "x.pth").shapes == {}


def test_dictionaries_that_contain_each_other(weights, tmp_path):
    inner = {"model": weights, "args": argparse.Namespace(lr=0.1)}
    for _ in range(5):
        inner = {"a": inner, "b": inner}
    inner["self"] = inner
    torch.save(inner, tmp_path / "x.pth")
    archive = open_archive(tmp_path / "x.pth")
    assert len(archive.shapes) == len(weights)
