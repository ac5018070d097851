"""Runs on the tasks of VTAB-1k, on datasets that TensorFlow Datasets writes here."""

import dataclasses
import json
import re
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_vit.checkpoints.trained import model_digest
from keras_vit.data import DATASETS, find_source, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments import vtab, vtab_run
from keras_vit.experiments.vtab_tasks import check_data
from keras_vit.training import job
from keras_vit.training.recipes import RECIPES
from keras_vit.training.saving import SaveState
from tests.data.sources.test_tfds import made_up
from tests.fixtures.commands import error_of, run
from tests.fixtures.features import tiny_model
from tests.fixtures.small_runs import no_training

# One task per group, whose validation and test splits are whole splits of the original.
BUILT = ("vtab/dtd", "vtab/patch_camelyon", "vtab/kitti_distance")
RUN = BUILT[1:]
SPLITS = {"train": 810, "validation": 205, "test": 40}


def build_dataset(name, data_dir, monkeypatch):
    """Write examples with the dataset's own features; one of two classes is dark, one light."""
    builder = tfds.builder(DATASETS[name].builder, data_dir=data_dir)
    rng = np.random.default_rng(0)

    def generate(count):
        for key in range(count):
            example = made_up(builder.info.features, rng)
            if name == "vtab/patch_camelyon":
                noise = rng.integers(0, 60, (96, 96, 3))
                example["image"] = (noise + 190 * example["label"]).astype("uint8")
            yield str(key), example

    def split_generators(self, *args, **kwargs):
        return {split: generate(count) for split, count in SPLITS.items()}

    monkeypatch.setattr(type(builder), "_split_generators", split_generators)
    builder.download_and_prepare()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in BUILT:
            build_dataset(name, root, monkeypatch)
    return root


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "start.keras"
    tiny_model().save(path)
    return path


def small_command(start, data_dir, tmp_path):
    """Return a run of few steps; the tasks are out of order."""
    small = "--image-size 8 --batch-size 50 --steps 12 --warmup-steps 2 --learning-rate 0.3"
    tasks = ("--tasks", "kitti_distance", "vtab/patch_camelyon")
    options = ("--workdir", tmp_path / "vtab", "--data-dir", data_dir)
    return ["vtab", start, *options, *small.split(), *tasks]


@pytest.fixture
def command(start, data_dir, tmp_path):
    return small_command(start, data_dir, tmp_path)


def results(tmp_path):
    return json.loads((tmp_path / "vtab" / "results.json").read_text())["accuracies"]


@pytest.mark.slow
@pytest.mark.examples
def test_tasks_are_run_once_and_go_on_where_they_were_stopped(
    command, tmp_path, capsys, monkeypatch, data_dir
):
    save, batches = SaveState.on_train_batch_begin, []

    def stop_once(self, batch, logs):
        save(self, batch, logs)
        batches.append(self.states.directory.parent.name)
        if batches.count("kitti_distance") == 7:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(SaveState, "on_train_batch_begin", stop_once)
    with pytest.raises(SystemExit) as stopped:
        run(capsys, *command, "--keep-models")
    assert stopped.value.code == 143
    # The model separates light from dark.
    assert results(tmp_path) == {"vtab/patch_camelyon": 1}
    states = (tmp_path / "vtab" / "kitti_distance" / "states").iterdir()
    assert [path.name for path in states] == ["batch-000000007.npz"]
    out = run(capsys, *command, "--keep-models")
    assert [batches.count(task[5:]) for task in RUN] == [12, 12]
    assert "[1/2] vtab/patch_camelyon: 100.00 %, done before\n[2/2] vtab/kitti_distance ..." in out
    accuracies = results(tmp_path)
    assert tuple(accuracies) == RUN
    for task in RUN:
        directory = tmp_path / "vtab" / task[5:]
        facts = json.loads((directory / "run.json").read_text())
        assert (facts["data"], facts["split"]) == (task, "train+validation")
        model = keras.models.load_model(directory / "last.keras")
        test = load(task, "test", 8, 40, data_dir=data_dir)
        assert accuracies[task] == pytest.approx(evaluate(model, test)["accuracy"])
        assert re.search(rf"\n{task} +{100 * accuracies[task]:.2f} %\n", out)
    mean = 100 * np.mean([accuracies[task] for task in RUN])
    assert re.search(rf"\nVTAB-1k, mean of 2 of 19 +{mean:.2f} %\n", out)
    monkeypatch.setattr(job, "train", no_training)
    # The data are not needed any more.
    again = run(capsys, *command, "--data-dir", tmp_path, "--markdown")
    assert again.count("done before") == 2
    assert f"| VTAB-1k, mean of 2 of 19 | {mean:.2f} % |" in again
    # Without `--keep-models` they are deleted.
    assert not list((tmp_path / "vtab").rglob("*.keras"))
    assert not list((tmp_path / "vtab").rglob("states"))
    assert "steps=13 instead of 12" in error_of(capsys, *command, "--steps", "13")


@pytest.mark.large
def test_a_learning_rate_is_chosen_on_200_images(command, tmp_path, capsys, monkeypatch):
    trained = []

    def train(recipe, model, data, workdir, split, validation, data_dir, facts, **options):
        splits = (
            part and find_source(data, part, data_dir=data_dir) for part in (split, validation)
        )
        counts = [source and source.num_examples for source in splits]
        where = str(workdir.relative_to(tmp_path / "vtab"))
        trained.append((where, recipe.learning_rate, *counts, (facts or {}).get("sweep")))
        history = [{"val_accuracy": accuracies[recipe.learning_rate]}]
        return job.Run(tiny_model(num_classes=2), history, workdir, recipe)

    accuracies = {0.1: 0.5, 0.2: 0.75, 0.4: 0.25}
    monkeypatch.setattr(job, "train", train)
    rates = ("--learning-rates", "0.4", "0.2", "0.1")
    out = run(capsys, *command, "--tasks", "patch_camelyon", *rates)
    assert trained == [
        ("patch_camelyon-sweep/0.1", 0.1, 800, 200, None),
        ("patch_camelyon-sweep/0.2", 0.2, 800, 200, None),
        ("patch_camelyon-sweep/0.4", 0.4, 800, 200, None),
        ("patch_camelyon", 0.2, 1000, None, {"0.1": 0.5, "0.2": 0.75, "0.4": 0.25}),
    ]
    assert "vtab/patch_camelyon: training on 1,000 images, learning rate 0.2\n" in out
    assert 0 < results(tmp_path)["vtab/patch_camelyon"] < 1


@pytest.mark.slow
def test_data_that_are_not_there(command, tmp_path, capsys, monkeypatch, data_dir):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr("requests.Session.get", fail)
    monkeypatch.setattr(job, "train", no_training)
    with pytest.raises(SystemExit):
        run(capsys, *command, "--tasks", "dtd", "sun397", "resisc45")
    # After the progress bars of TensorFlow Datasets.
    line = capsys.readouterr().err.splitlines()[-1]
    assert "2 of 3 that cannot be loaded: vtab/sun397 (The dataset sun397 cannot be" in line
    assert "vtab/resisc45 (The dataset resisc45 cannot be downloaded" in line
    assert not (tmp_path / "vtab").exists()


@pytest.mark.slow
def test_files_that_were_not_copied(data_dir, tmp_path):
    (tmp_path / "dtd").symlink_to(data_dir / "dtd")
    check_data(["vtab/dtd"], tmp_path)
    name = "patch_camelyon"
    shutil.copytree(data_dir / name, tmp_path / name, ignore=shutil.ignore_patterns("*test*"))
    with pytest.raises(ValueError, match=r"1 of 2 .* loaded: vtab/patch_camelyon \(.*No such file"):
        check_data(["vtab/dtd", "vtab/patch_camelyon"], tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "cifar10"], "`tasks` must be among caltech101, .*'cifar10'"),
        (["--loss", "pixels"], "`--loss` must be one of .*loss='pixels'"),
        (["--warmup-steps", "12"], "`--warmup-steps` and `boundaries` must be smaller"),
        (["--compare", "ViT_L16/jft300m/vtab"], "`compare` .* architecture, which is not"),
        (["--compare", "ViT_L16"], "`compare` must name a row that has a reported accuracy"),
        (["--image-size", "9"], "Received: .*9"),
    ],
)
def test_wrong_commands(start, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vtab_run, "check_data", no_training)
    command = small_command(start, tmp_path, tmp_path)
    assert re.search(message, error_of(capsys, *command, *arguments))
    assert not (tmp_path / "vtab").exists()


def test_one_learning_rate_is_no_choice():
    recipe = RECIPES["finetune_cifar"]
    assert vtab_run._with_one_rate(recipe) == recipe
    one = vtab_run._with_one_rate(dataclasses.replace(recipe, learning_rates=(1,)))
    assert (one.learning_rate, one.learning_rates) == (1, ())


def test_the_results_are_of_a_model_and_its_data(tmp_path, monkeypatch):
    monkeypatch.setattr(vtab_run._Runs, "train_and_test", lambda *_: 0.5)
    path = tmp_path / "m.keras"
    tiny_model().save(path)
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8)
    digits = {"svhn": "digits"}
    found = vtab(path, tmp_path / "vtab", ["svhn"], recipe, datasets=digits)
    assert found.means["natural"] == (0.5, ("vtab/svhn",))
    settings = json.loads((tmp_path / "vtab" / "results.json").read_text())["settings"]
    assert model_digest(path).items() <= settings.items()
    assert {"vtab/svhn", "vtab/svhn_train_digest"} <= set(settings)
    with pytest.raises(ValueError, match="begun with. Received: vtab/svhn=None instead of"):
        vtab(path, tmp_path / "vtab", ["svhn"], recipe)
