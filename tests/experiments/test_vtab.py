"""Runs on the tasks of VTAB-1k, on datasets that TensorFlow Datasets writes here; its tables."""

import dataclasses
import json
import signal

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_vit.checkpoints.named_models import model_digest
from keras_vit.data import DATASETS, find_source, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments import vtab, vtab_run
from keras_vit.experiments.reported import find_reported
from keras_vit.experiments.vtab_run import accuracies_by_seed, find_tasks
from keras_vit.experiments.vtab_tables import (
    GROUPS,
    REPORTED,
    TASKS,
    find_row,
    mean_accuracies,
    table_rows,
)
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.save_callbacks import SaveState
from tests.data.sources.test_tfds import made_up
from tests.fixtures.commands import error_of, run
from tests.fixtures.features import tiny_model
from tests.fixtures.small_runs import no_training

# Tasks whose validation and test splits are whole splits of the original.
RUN = ("vtab/patch_camelyon", "vtab/kitti_distance")
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
        for name in RUN:
            build_dataset(name, root, monkeypatch)
    return root


@pytest.fixture
def command(data_dir, tmp_path):
    """A run of few steps; the tasks are out of order."""
    small = "--image-size 8 --batch-size 50 --steps 12 --warmup-steps 2 --learning-rate 0.3"
    tasks = ("--tasks", "kitti_distance", "vtab/patch_camelyon")
    options = ("--workdir", tmp_path / "vtab", "--data-dir", data_dir)
    tiny_model().save(tmp_path / "start.keras")
    return ["vtab", tmp_path / "start.keras", *options, *small.split(), *tasks]


def results(tmp_path):
    return accuracies_by_seed(tmp_path / "vtab")[0]


@pytest.mark.slow
@pytest.mark.examples
def test_tasks_are_run_once_and_go_on_where_they_were_stopped(
    command, tmp_path, capsys, monkeypatch, data_dir
):
    save, batches = SaveState.on_train_batch_begin, []

    def stop_once(self, batch, logs):
        save(self, batch, logs)
        batches.append(self.states.directory.parent.name)
        if batches.count("kitti_distance-seed-0") == 7:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(SaveState, "on_train_batch_begin", stop_once)
    with pytest.raises(SystemExit) as stopped:
        run(capsys, *command, "--keep-models")
    assert stopped.value.code == 143
    # The model separates light from dark.
    assert results(tmp_path) == {"vtab/patch_camelyon": 1}
    states = (tmp_path / "vtab" / "kitti_distance-seed-0" / "states").iterdir()
    assert [path.name for path in states] == ["batch-000000007.npz"]
    out = run(capsys, *command, "--keep-models")
    assert [batches.count(f"{task[5:]}-seed-0") for task in RUN] == [12, 12]
    accuracies = results(tmp_path)
    assert tuple(accuracies) == RUN
    for task in RUN:
        directory = tmp_path / "vtab" / f"{task[5:]}-seed-0"
        facts = json.loads((directory / "run.json").read_text())
        assert (facts["data"], facts["split"]) == (task, "train+validation")
        model = keras.models.load_model(directory / "last.keras")
        test = load(task, "test", 8, 40, data_dir=data_dir)
        assert accuracies[task] == pytest.approx(evaluate(model, test)["accuracy"])
    mean = 100 * np.mean([accuracies[task] for task in RUN])
    assert out.splitlines()[-2].endswith(f" {mean:.2f} %")
    monkeypatch.setattr(trainer, "train", no_training)
    # The data are not needed any more.
    assert run(capsys, *command, "--data-dir", tmp_path).count("done before") == 2
    # Without `--keep-models` they are deleted.
    assert not list((tmp_path / "vtab").rglob("*.keras"))
    assert not list((tmp_path / "vtab").rglob("states"))
    assert "recipe.steps=13 instead of 12" in error_of(capsys, *command, "--steps", "13")


@pytest.mark.slow
def test_a_learning_rate_is_chosen_on_200_images(command, tmp_path, capsys, monkeypatch):
    trained = []

    def train(recipe, model, data, workdir, split, validation, data_dir, metadata=None, **options):
        splits = (
            part and find_source(data, part, data_dir=data_dir) for part in (split, validation)
        )
        counts = [source and source.num_examples for source in splits]
        where = str(workdir.relative_to(tmp_path / "vtab"))
        trained.append((where, recipe.learning_rate, *counts, (metadata or {}).get("sweep")))
        history = [{"val_accuracy": accuracies[recipe.learning_rate]}]
        return trainer.Run(tiny_model(num_classes=2), history, workdir, recipe)

    accuracies = {0.1: 0.5, 0.2: 0.75, 0.4: 0.25}
    monkeypatch.setattr(trainer, "train", train)
    rates = ("--learning-rates", "0.4", "0.2", "0.1")
    run(capsys, *command, "--tasks", "patch_camelyon", *rates)
    assert trained == [
        ("patch_camelyon-seed-0-sweep/0.1", 0.1, 800, 200, None),
        ("patch_camelyon-seed-0-sweep/0.2", 0.2, 800, 200, None),
        ("patch_camelyon-seed-0-sweep/0.4", 0.4, 800, 200, None),
        ("patch_camelyon-seed-0", 0.2, 1000, None, {"0.1": 0.5, "0.2": 0.75, "0.4": 0.25}),
    ]
    assert 0 < results(tmp_path)["vtab/patch_camelyon"] < 1


@pytest.fixture
def trained(monkeypatch):
    """The seeds of the runs, which train nothing."""
    seeds = []

    def train_and_test(runs, task, seed):
        seeds.append(seed)
        return 0.5 + seed / 100

    monkeypatch.setattr(vtab_run._Runs, "train_and_test", train_and_test)
    return seeds


@pytest.fixture
def small(tmp_path):
    """A model, a directory, a task and a recipe."""
    tiny_model().save(tmp_path / "m.keras")
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8, seed=1)
    return tmp_path / "m.keras", tmp_path / "vtab", ["svhn"], recipe


DIGITS = {"svhn": "digits"}


def test_the_results_are_of_a_model_and_its_data(small, trained):
    path, workdir, *_ = small
    vtab(*small, datasets=DIGITS)
    settings = json.loads((workdir / "settings.json").read_text())
    assert model_digest(path).items() <= settings.items()
    assert "train digest" in settings["data vtab/svhn"]
    with pytest.raises(ValueError, match=r"begun with. Received: datasets=\[\] instead of"):
        vtab(*small)
    # A file that is replaced under the same path is another model.
    tiny_model(depth=2).save(path)
    with pytest.raises(ValueError, match="begun with. Received: model_digest='.*' instead of '"):
        vtab(*small, datasets=DIGITS)


@pytest.mark.slow
def test_a_directory_has_all_seeds_and_repeats_none(small, trained):
    found = vtab(*small, seeds=2, datasets=DIGITS)
    assert found.accuracies == {1: {"vtab/svhn": 0.51}, 2: {"vtab/svhn": 0.52}}
    assert trained == [1, 2]
    vtab(*small, seeds=3, datasets=DIGITS)
    assert trained == [1, 2, 3]
    assert vtab(*small, datasets=DIGITS).accuracies == {1: found.accuracies[1]}


def test_tasks_are_found_by_name_and_group():
    assert find_tasks() == TASKS
    assert find_tasks(["structured", "dtd", "dmlab"]) == ("vtab/dtd", *GROUPS["structured"])
    with pytest.raises(ValueError, match="`tasks` must be among caltech101"):
        find_tasks(["cifar10"])


def test_means_by_group():
    accuracies = dict(zip(TASKS, np.arange(19) / 100, strict=True))
    means = mean_accuracies(accuracies)
    # 0 to 6, 7 to 10, 11 to 18; and each task counts once, where the mean of means is 8.67.
    assert [round(100 * mean, 6) for mean, _ in means.values()] == [3, 8.5, 14.5, 9]
    rows = list(table_rows(accuracies))
    assert rows[-2:] == [("structured, mean of 8", "14.50 %"), ("VTAB-1k, mean of 19", "9.00 %")]


@pytest.mark.parametrize("name", REPORTED)
def test_the_papers_tasks_have_the_mean_of_its_table_2(name):
    reported = find_reported(name)
    mean, tasks = mean_accuracies(REPORTED[name])["VTAB-1k"]
    assert tasks == TASKS
    # The values have one decimal.
    assert mean == pytest.approx(reported.accuracy, abs=0.03)
    rows = list(table_rows({task: value / 100 for task, value in REPORTED[name].items()}, reported))
    assert rows[-1] == (
        *("VTAB-1k, mean of 19", f"{mean:.2f} %", str(reported)),
        f"{mean - reported.accuracy:+.2f}",
    )
    assert all(float(row[-1]) == 0 for row in rows[:-1])


def test_the_row_of_a_model_is_found_by_its_checkpoint():
    row = find_reported("ViT_L16/imagenet21k/vtab")
    assert find_row("ViT_L16/imagenet21k") == row
    assert find_row("gs://vit_models/imagenet21k/ViT-L_16.npz") == row
    assert find_row("ViT_B16/imagenet21k") is None
    with pytest.raises(ValueError, match="dataset VTAB and the model's architecture"):
        find_row("model.keras", None, "ViT_L16/jft300m/vtab")


def test_a_table_has_the_deviation_over_the_seeds():
    runs = [{"vtab/dtd": 0.7, "vtab/svhn": 0.9}, {"vtab/dtd": 0.8, "vtab/svhn": 0.9}]
    rows = [row[:2] for row in table_rows(runs, find_row("ViT_L16/imagenet21k"))]
    deviation = 100 * np.std([0.7, 0.8], ddof=1)
    assert rows == [
        ("vtab/dtd", f"75.00 ± {deviation:.2f} %"),
        ("vtab/svhn", "90.00 ± 0.00 %"),
        # The mean of each run first: 80 and 85 %.
        ("natural, mean of 2 of 7", f"82.50 ± {deviation / 2:.2f} %"),
        ("VTAB-1k, mean of 2 of 19", f"82.50 ± {deviation / 2:.2f} %"),
    ]
