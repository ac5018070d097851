"""Strategies: their runs end with the same metrics."""

import keras
import pytest

from keras_vit.training.distribution import SingleDevice, check_batch, strategy
from keras_vit.training.recipes import FINETUNE
from tests.fixtures.distributed.processes import printed_json, start, start_two
from tests.fixtures.distributed.run import train

on_tensorflow = pytest.mark.backends("tensorflow", reason="TensorFlow's strategies")
on_jax = pytest.mark.backends("jax", reason="keras.distribution is for JAX")

MODULE = "tests.fixtures.distributed.run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return the metrics of the run on one device."""
    return train("none", tmp_path_factory.mktemp("single") / "run")


def check_metrics(process, expected):
    """Compare the metrics that a process prints."""
    for ours, theirs in zip(printed_json(process), expected, strict=True):
        assert ours == pytest.approx(theirs, rel=0, abs=1e-5)


@on_tensorflow
@pytest.mark.parametrize(
    "steps",
    [pytest.param("1", marks=pytest.mark.large), pytest.param("4", marks=pytest.mark.processes)],
)
def test_two_replicas(steps, tmp_path, expected):
    arguments = ["--strategy", "mirrored", "--devices", "2", "--accumulation-steps", steps]
    check_metrics(start(MODULE, "--workdir", tmp_path, *arguments), expected)


@on_jax
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("data_parallel --devices 2 --accumulation-steps 2", marks=pytest.mark.large),
        "model_parallel --devices 4",
        pytest.param("model_parallel --devices 4 --model-shards 2", marks=pytest.mark.large),
    ],
)
def test_devices(arguments, tmp_path, expected):
    command = (MODULE, "--workdir", tmp_path, "--strategy", *arguments.split())
    check_metrics(start(*command), expected)


@on_jax
def test_two_processes(tmp_path, expected):
    for process in start_two(MODULE, "--workdir", tmp_path, "--strategy", "auto"):
        check_metrics(process, expected)
    # Only the first process has written files.
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"run.json", "metrics.jsonl", "best.keras", "last.keras", "states"} <= names


def test_no_strategy():
    assert isinstance(strategy("none"), SingleDevice)
    assert isinstance(strategy("auto"), SingleDevice)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multi_worker_mirrored", {}, "use the JAX backend .*'multi_worker_mirrored'"),
        ("miror", {}, "`strategy` must be one of auto, none.*strategy='miror'"),
        ("none", {"model_shards": 2}, "`model_shards` is for the strategy `model_parallel`"),
        pytest.param(
            *("tpu", {}, "needs a TPU, and none was found.*TPU_NAME='local'"), marks=on_tensorflow
        ),
        pytest.param(
            *("data_parallel", {}, "one of auto, none, mirrored, tpu with the tensorflow backend"),
            marks=on_tensorflow,
        ),
        pytest.param(
            *("model_parallel", {"model_shards": 3}, "must divide the number of devices, 1"),
            marks=on_jax,
        ),
    ],
)
def test_wrong_strategy(name, options, message):
    with pytest.raises(ValueError, match=message):
        strategy(name, **options)


def test_a_backend_that_cannot_train(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(ValueError, match="needs one of the backends .*KERAS_BACKEND=numpy"):
        strategy("auto")


@on_jax
def test_an_empty_count_of_processes(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "")
    assert isinstance(strategy("none"), SingleDevice)


def test_a_batch_that_cannot_be_cut(monkeypatch):
    monkeypatch.setattr("keras_vit.training.distribution.num_replicas", lambda: 3)
    with pytest.raises(ValueError, match="`batch_size` must be a multiple of .* 3 replicas.*=512"):
        check_batch(FINETUNE)
