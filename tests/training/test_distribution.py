"""Strategies: their runs end with the same metrics."""

import json
import time

import pytest

from keras_vit.training.distribution import SingleDevice, strategy
from tests.fixtures.commands import run_python
from tests.fixtures.distributed.processes import (
    free_port,
    printed_json,
    printed_jsons,
    start,
    start_two,
)
from tests.fixtures.distributed.run import train
from tests.fixtures.images import write_broken_folder
from tests.fixtures.masks import write_masks
from tests.fixtures.small_runs import small_fit

on_tensorflow = pytest.mark.backends("tensorflow", reason="TensorFlow's strategies")
on_jax = pytest.mark.backends("jax", reason="keras.distribution is for JAX")

MODULE = "tests.fixtures.distributed.run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return the metrics and measurements of the run on one device."""
    return train("none", tmp_path_factory.mktemp("single") / "run")


def check_metrics(printed, expected):
    """Compare the metrics and measurements that a process prints."""
    for ours, theirs in zip(printed, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=0, abs=1e-5)


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("mirrored --devices 2 --accumulation-steps 4", marks=on_tensorflow),
        pytest.param("data_parallel --devices 2 --accumulation-steps 2", marks=on_jax),
        pytest.param("model_parallel --devices 4", marks=on_jax),
        pytest.param("model_parallel --devices 4 --model-shards 2", marks=on_jax),
    ],
)
def test_a_run_on_several_devices_is_that_on_one(arguments, tmp_path, expected):
    command = (MODULE, "--workdir", tmp_path, "--strategy", *arguments.split())
    check_metrics(printed_json(start(*command)), expected)


@on_jax
@pytest.mark.parametrize(
    ("launcher", "arguments"),
    [
        ("keras", "auto"),
        pytest.param("openmpi", "auto", marks=pytest.mark.large),
        pytest.param("slurm", "auto", marks=pytest.mark.large),
        pytest.param(
            *("keras", "model_parallel --devices 2 --model-shards 2"), marks=pytest.mark.processes
        ),
    ],
)
def test_a_run_of_two_processes_is_that_of_one(launcher, arguments, tmp_path, expected):
    command = (MODULE, "--workdir", tmp_path, "--strategy", *arguments.split())
    for process in start_two(*command, launcher=launcher):
        check_metrics(printed_json(process), expected)
    # Only the first process has written files.
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line).get("step") for line in lines] == [8, 16, None, 20]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"run.json", "best.keras", "last.keras", "states"} <= names


@on_jax
@pytest.mark.processes
def test_a_run_of_torchrun_is_that_of_one_process(tmp_path, expected):
    pytest.importorskip("torch")
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port())
    command = ("-m", MODULE, "--workdir", tmp_path, "--strategy", "auto")
    for printed in printed_jsons(start(*launcher, *command)):
        check_metrics(printed, expected)


@on_jax
@pytest.mark.processes
def test_two_processes_with_a_divided_model_are_resumed_on_one(tmp_path):
    """A mesh of 2 x 2 devices: two processes, each with a model on two devices."""
    expected = train("none", tmp_path / "single", steps=60)
    flags = ("--workdir", tmp_path, "--steps", "60", "--save-steps", "5", "--strategy")
    mesh = ("model_parallel", "--devices", "2", "--model-shards", "2")
    processes = start_two(MODULE, *flags, *mesh)
    while len(list((tmp_path / "run").glob("states/*.npz"))) < 2:
        assert all(process.poll() is None for process in processes), "ended too early"
        time.sleep(0.05)
    for process in processes:
        process.kill()
        process.communicate()
    states = sorted(path.name for path in (tmp_path / "run" / "states").glob("*.npz"))
    assert 0 < int(states[-1].strip("batch-.npz")) < 60
    check_metrics(printed_json(start(MODULE, *flags, "none")), expected)


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
def test_a_model_is_not_divided_among_processes(monkeypatch):
    monkeypatch.setattr("keras_vit.training.distribution.process", lambda: (0, 2))
    devices = [f"cpu:{number}" for number in range(4)]
    monkeypatch.setattr("keras.distribution.list_devices", lambda: devices)
    with pytest.raises(ValueError, match="devices of a process, 2"):
        strategy("model_parallel", model_shards=4)
    with pytest.raises(ValueError, match="for several processes"):
        strategy("none")


def test_one_device_has_no_strategy():
    assert isinstance(strategy("none"), SingleDevice)
    assert isinstance(strategy("auto"), SingleDevice)
    with pytest.raises(ValueError, match="`model_shards` is for the strategy `model_parallel`"):
        strategy("none", model_shards=2)


def test_a_batch_that_replicas_cannot_share_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("keras_vit.training.distribution.num_replicas", lambda: 3)
    with pytest.raises(ValueError, match="`batch_size` must be .* of 3, the number of replicas"):
        small_fit(tmp_path / "run")
