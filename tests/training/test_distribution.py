"""Strategies: their runs end with the same metrics."""

import json
import time

import pytest

from keras_vit.training.distribution import SingleDevice, check_batch, strategy
from keras_vit.training.recipe import RECIPES
from tests.fixtures.commands import run_python
from tests.fixtures.distributed.processes import (
    free_port,
    printed_json,
    printed_jsons,
    start,
    start_two,
)
from tests.fixtures.distributed.run import measuring, train
from tests.fixtures.images import write_broken_folder
from tests.fixtures.masks import write_masks

on_tensorflow = pytest.mark.backends("tensorflow", reason="TensorFlow's strategies")
on_jax = pytest.mark.backends("jax", reason="keras.distribution is for JAX")

MODULE = "tests.fixtures.distributed.run"
AUTO = ("--strategy", "auto")


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
        pytest.param("model_parallel --devices 4", marks=pytest.mark.processes),
        pytest.param("model_parallel --devices 4 --model-shards 2", marks=pytest.mark.large),
    ],
)
def test_devices(arguments, tmp_path, expected):
    command = (MODULE, "--workdir", tmp_path, "--strategy", *arguments.split())
    check_metrics(start(*command), expected)


@on_jax
@pytest.mark.parametrize(
    "launcher", ["keras", *(pytest.param(n, marks=pytest.mark.large) for n in ("openmpi", "slurm"))]
)
def test_two_processes(launcher, tmp_path, expected):
    command = (MODULE, "--workdir", tmp_path, "--strategy", "auto")
    for process in start_two(*command, launcher=launcher):
        check_metrics(process, expected)
    # Only the first process has written files.
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"run.json", "metrics.jsonl", "best.keras", "last.keras", "states"} <= names


@on_jax
@pytest.mark.processes
def test_two_processes_of_torchrun(tmp_path, expected):
    pytest.importorskip("torch")
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port())
    for metrics in printed_jsons(start(*launcher, "-m", MODULE, "--workdir", tmp_path, *AUTO)):
        for ours, theirs in zip(metrics, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=0, abs=1e-5)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return the measurements of the run on one device."""
    callbacks = measuring(8)
    train("none", tmp_path_factory.mktemp("measured") / "run", callbacks=callbacks)
    return callbacks[0].rows


def check_steps(workdir):
    """Check after which steps a run was measured, as its first process writes."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "step" in line] == [8, 16, 20]


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("mirrored --devices 2", marks=on_tensorflow),
        pytest.param("data_parallel --devices 2", marks=on_jax),
        pytest.param("model_parallel --devices 4 --model-shards 2", marks=on_jax),
    ],
)
def test_measurements_of_devices(arguments, tmp_path, measured):
    command = (MODULE, "--workdir", tmp_path, "--measure-every", "8", "--strategy")
    check_metrics(start(*command, *arguments.split()), measured)
    check_steps(tmp_path / "run")


@on_jax
@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments", ["data_parallel", "model_parallel --devices 2 --model-shards 2"]
)
def test_measurements_of_processes(arguments, tmp_path, measured):
    command = (MODULE, "--workdir", tmp_path, "--measure-every", "8", "--strategy")
    for process in start_two(*command, *arguments.split()):
        check_metrics(process, measured)
    check_steps(tmp_path / "run")


@on_jax
@pytest.mark.processes
def test_two_processes_with_a_divided_model_are_resumed_on_one(tmp_path):
    """A mesh of 2 x 2 devices: two processes, each with a model on two devices."""
    expected = train("none", tmp_path / "single", steps=60)
    flags = ("--workdir", tmp_path, "--steps", "60", "--save-steps", "5", "--strategy")
    mesh = ("model_parallel", "--devices", "2", "--model-shards", "2")
    processes = start_two(MODULE, *flags, *mesh)
    wait_for(lambda: len(list((tmp_path / "run").glob("states/*.npz"))) > 1, processes)
    for process in processes:
        process.kill()
        process.communicate()
    states = sorted(path.name for path in (tmp_path / "run" / "states").glob("*.npz"))
    assert 0 < int(states[-1].strip("batch-.npz")) < 60
    resumed = start(MODULE, *flags, "none")
    check_metrics(resumed, expected)


@on_jax
@pytest.mark.processes
@pytest.mark.parametrize("loss", ["softmax", "mean_color", "segmentation"])
def test_images_that_cannot_be_decoded(loss, tmp_path):
    """The loss and the metrics of two devices, which share padded batches, are those of one."""
    code = """
import json
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import keras
import numpy as np
from keras_vit.training.distribution import strategy
from keras_vit.training.starting_model import make_model
from keras_vit.training.tasks import make_task
from keras_vit.training.trainer import load_training_data
from keras_vit.training.resumable_fit import for_evaluation
from tests.fixtures.small_runs import small_recipe
recipe = small_recipe(batch_size=8, loss=sys.argv[1])
def evaluated(name):
    with strategy(name).scope():
        data = load_training_data(recipe, sys.argv[2])
        num_classes = len(data[0].class_names)
        model = make_model(recipe, "ViT_Ti16(patch_size=4, depth=1)", num_classes)
        task = make_task(recipe, model, *data)
        rng = np.random.default_rng(0)
        # The head is zero at the start.
        for variable in task.model.trainable_variables:
            variable.assign(rng.normal(size=variable.shape))
        task.model.compile("sgd", task.loss, weighted_metrics=list(task.metrics))
        images = for_evaluation(task.validation.batches(), recipe.batch_size)
        return task.model.evaluate(images, return_dict=True, verbose=0)
print(json.dumps([evaluated("none"), evaluated("data_parallel")]))
"""
    if loss == "segmentation":
        data = f"masks:{write_masks(tmp_path, count=11)}"
        (tmp_path / "validation" / "images" / "2.png").write_bytes(b"broken")
    else:
        data = f"folder:{write_broken_folder(tmp_path)}"
    one, two = json.loads(run_python(code, loss, data).splitlines()[-1])
    assert two == pytest.approx(one, rel=1e-5)


@on_jax
@pytest.mark.slow
def test_a_divided_model_is_exported(tmp_path):
    code = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import keras_vit
from keras_vit.training.distribution import strategy
from tests.fixtures.models import classifier, images
with strategy("model_parallel").scope():
    model = classifier(num_heads=2)
    batch = images(2, *model.input_shape[1:])
    expected = np.asarray(model(batch))
    path = keras_vit.export(model, sys.argv[1])
(kernel,) = (v for v in model.weights if v.path == "block_0/mlp/dense_0/kernel")
assert not kernel.value.is_fully_replicated
import tensorflow as tf
served = tf.saved_model.load(str(path)).signatures["float"]
print(np.abs(served(images=tf.constant(batch))["logits"] - expected).max())
"""
    assert float(run_python(code, tmp_path / "pets").splitlines()[-1]) < 1e-4


@on_jax
@pytest.mark.slow
def test_the_momentum_of_a_divided_model_is_divided():
    code = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
from keras_vit.training.distribution import strategy
from keras_vit.training.optimizers import SGD, AdamW
from tests.fixtures.models import classifier
with strategy("model_parallel").scope():
    variables = classifier(num_heads=2).trainable_variables
    for kind, name in ((SGD, "traces"), (AdamW, "means")):
        optimizer = kind(0.1, momentum_dtype="bfloat16")
        optimizer.build(variables)
        for variable, momentum in zip(variables, getattr(optimizer, name), strict=True):
            assert momentum.value.sharding == variable.value.sharding, variable.path
print(sum(not variable.value.is_fully_replicated for variable in variables))
"""
    assert int(run_python(code)) > 0


def wait_for(condition, processes):
    while not condition():
        assert all(process.poll() is None for process in processes), "ended too early"
        time.sleep(0.05)


@on_jax
def test_a_model_is_not_divided_among_processes(monkeypatch):
    monkeypatch.setattr("keras_vit.training.distribution.process", lambda: (0, 2))
    devices = [f"cpu:{number}" for number in range(4)]
    monkeypatch.setattr("keras.distribution.list_devices", lambda: devices)
    with pytest.raises(ValueError, match="devices of a process, 2. Received: model_shards=4"):
        strategy("model_parallel", model_shards=4)
    with pytest.raises(ValueError, match="for several processes. Received: strategy='none'"):
        strategy("none")


@on_jax
def test_incomplete_settings_of_a_launcher(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(KeyError, match="MASTER_PORT"):
        strategy("auto")


def test_no_strategy():
    assert isinstance(strategy("none"), SingleDevice)
    assert isinstance(strategy("auto"), SingleDevice)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("miror", {}, "`strategy` must be one of auto, none.*strategy='miror'"),
        ("none", {"model_shards": 2}, "`model_shards` is for the strategy `model_parallel`"),
        pytest.param(
            *("data_parallel", {}, "one of auto, none, mirrored, tpu with the tensorflow backend"),
            marks=on_tensorflow,
        ),
        pytest.param(
            *("model_parallel", {"model_shards": 3}, "devices of a process, 1"),
            marks=on_jax,
        ),
    ],
)
def test_wrong_strategy(name, options, message):
    with pytest.raises(ValueError, match=message):
        strategy(name, **options)


@on_jax
def test_an_empty_count_of_processes(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "")
    assert isinstance(strategy("none"), SingleDevice)


def test_a_batch_that_cannot_be_cut(monkeypatch):
    monkeypatch.setattr("keras_vit.training.distribution.num_replicas", lambda: 3)
    with pytest.raises(ValueError, match="`batch_size` must be .* of 3, the replicas .*=512"):
        check_batch(RECIPES["finetune"])
