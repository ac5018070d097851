"""Runs on the tasks of VTAB-1k, on datasets that TensorFlow Datasets writes here."""

import dataclasses
import json
import re
import signal

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_vit.checkpoints.named_models import model_digest
from keras_vit.data import DATASETS, find_source, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments import vtab, vtab_run
from keras_vit.experiments.vtab_run import accuracies_by_seed, find_tasks
from keras_vit.experiments.vtab_tables import GROUPS, TASKS
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES
from keras_vit.training.save_callbacks import SaveState
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
    assert (
        "[1/2] vtab/patch_camelyon, seed 0: done before\n[2/2] vtab/kitti_distance, seed 0 ..."
        in out
    )
    accuracies = results(tmp_path)
    assert tuple(accuracies) == RUN
    for task in RUN:
        directory = tmp_path / "vtab" / f"{task[5:]}-seed-0"
        conditions = json.loads((directory / "run.json").read_text())
        assert (conditions["data"], conditions["split"]) == (task, "train+validation")
        model = keras.models.load_model(directory / "last.keras")
        test = load(task, "test", 8, 40, data_dir=data_dir)
        assert accuracies[task] == pytest.approx(evaluate(model, test)["accuracy"])
        assert re.search(rf"\n{task} +{100 * accuracies[task]:.2f} %\n", out)
    mean = 100 * np.mean([accuracies[task] for task in RUN])
    assert re.search(rf"\nVTAB-1k, mean of 2 of 19 +{mean:.2f} %\n", out)
    monkeypatch.setattr(trainer, "train", no_training)
    # The data are not needed any more.
    again = run(capsys, *command, "--data-dir", tmp_path, "--markdown")
    assert again.count("done before") == 2
    assert f"| VTAB-1k, mean of 2 of 19 | {mean:.2f} % |" in again
    # Without `--keep-models` they are deleted.
    assert not list((tmp_path / "vtab").rglob("*.keras"))
    assert not list((tmp_path / "vtab").rglob("states"))
    assert "recipe.steps=13 instead of 12" in error_of(capsys, *command, "--steps", "13")


@pytest.mark.large
def test_a_learning_rate_is_chosen_on_200_images(command, tmp_path, capsys, monkeypatch):
    trained = []

    def train(recipe, model, data, workdir, split, validation, data_dir, conditions, **options):
        splits = (
            part and find_source(data, part, data_dir=data_dir) for part in (split, validation)
        )
        counts = [source and source.num_examples for source in splits]
        where = str(workdir.relative_to(tmp_path / "vtab"))
        trained.append((where, recipe.learning_rate, *counts, (conditions or {}).get("sweep")))
        history = [{"val_accuracy": accuracies[recipe.learning_rate]}]
        return trainer.Run(tiny_model(num_classes=2), history, workdir, recipe)

    accuracies = {0.1: 0.5, 0.2: 0.75, 0.4: 0.25}
    monkeypatch.setattr(trainer, "train", train)
    rates = ("--learning-rates", "0.4", "0.2", "0.1")
    out = run(capsys, *command, "--tasks", "patch_camelyon", *rates)
    assert trained == [
        ("patch_camelyon-seed-0-sweep/0.1", 0.1, 800, 200, None),
        ("patch_camelyon-seed-0-sweep/0.2", 0.2, 800, 200, None),
        ("patch_camelyon-seed-0-sweep/0.4", 0.4, 800, 200, None),
        ("patch_camelyon-seed-0", 0.2, 1000, None, {"0.1": 0.5, "0.2": 0.75, "0.4": 0.25}),
    ]
    assert "vtab/patch_camelyon: training on 1,000 images, learning rate 0.2\n" in out
    assert 0 < results(tmp_path)["vtab/patch_camelyon"] < 1


@pytest.mark.slow
def test_data_that_are_not_there(command, tmp_path, capsys, monkeypatch, data_dir):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr("requests.Session.get", fail)
    monkeypatch.setattr(trainer, "train", no_training)
    with pytest.raises(SystemExit):
        run(capsys, *command, "--tasks", "dtd", "sun397", "resisc45")
    # After the progress bars of TensorFlow Datasets.
    line = capsys.readouterr().err.splitlines()[-1]
    assert "The dataset sun397 cannot be downloaded" in line
    assert not (tmp_path / "vtab").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "cifar10"], "`tasks` must be among caltech101, .*'cifar10'"),
        (["--compare", "ViT_L16/jft300m/vtab"], "`compare` .* architecture, which is not"),
        (["--compare", "ViT_L16"], "`compare` must name a row that has a reported accuracy"),
        (["--image-size", "9"], "Received: .*9"),
    ],
)
def test_wrong_commands(start, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vtab_run.Images, "conditions", no_training)
    command = small_command(start, tmp_path, tmp_path)
    assert re.search(message, error_of(capsys, *command, *arguments))
    assert not (tmp_path / "vtab").exists()


def test_the_results_are_of_a_model_and_its_data(tmp_path, monkeypatch):
    monkeypatch.setattr(vtab_run._Runs, "train_and_test", lambda *_: 0.5)
    path = tmp_path / "m.keras"
    tiny_model().save(path)
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8)
    digits = {"svhn": "digits"}
    found = vtab(path, tmp_path / "vtab", ["svhn"], recipe, datasets=digits)
    assert found.accuracies == {0: {"vtab/svhn": 0.5}}
    settings = json.loads((tmp_path / "vtab" / "settings.json").read_text())
    assert model_digest(path).items() <= settings.items()
    assert "train digest" in settings["data vtab/svhn"]
    with pytest.raises(ValueError, match=r"begun with. Received: datasets=\[\] instead of"):
        vtab(path, tmp_path / "vtab", ["svhn"], recipe)
    # A file that is replaced under the same path is another model.
    tiny_model(depth=2).save(path)
    with pytest.raises(ValueError, match="begun with. Received: model_digest='.*' instead of '"):
        vtab(path, tmp_path / "vtab", ["svhn"], recipe, datasets=digits)
    assert model_digest("ViT_L16/imagenet21k") == {}


def test_one_learning_rate_is_no_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(vtab_run.Images, "conditions", lambda *_: None)
    trained = []
    monkeypatch.setattr(vtab_run._Runs, "train_and_test", lambda r, *_: trained.append(r) or 0.5)
    tiny_model().save(tmp_path / "m.keras")
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8, learning_rates=(1,))
    vtab(tmp_path / "m.keras", tmp_path / "vtab", ["svhn"], recipe)
    assert (trained[0].recipe.learning_rate, trained[0].recipe.learning_rates) == (1, ())


def test_tasks_by_name_and_group():
    assert find_tasks() == TASKS
    assert len(TASKS) == 19
    assert find_tasks(["structured", "dtd", "dmlab"]) == ("vtab/dtd", *GROUPS["structured"])


@pytest.mark.parametrize("seeds", [0, 1.5])
def test_a_wrong_number_of_seeds(seeds, tmp_path):
    with pytest.raises(ValueError, match="`seeds` must be an integer of at least 1"):
        vtab("model", tmp_path / "runs", seeds=seeds)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_same_directory_has_all_seeds(tmp_path, monkeypatch):
    seeds = []

    def train_and_test(runs, task, seed):
        seeds.append(seed)
        return 0.5 + seed / 100

    monkeypatch.setattr(vtab_run._Runs, "train_and_test", train_and_test)
    tiny_model().save(tmp_path / "m.keras")
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8, seed=1)
    arguments = (tmp_path / "m.keras", tmp_path / "vtab", ["svhn"], recipe)
    options = {"datasets": {"svhn": "digits"}}
    found = vtab(*arguments, seeds=2, **options)
    assert found.accuracies == {1: {"vtab/svhn": 0.51}, 2: {"vtab/svhn": 0.52}}
    assert seeds == [1, 2]
    # The runs before are not repeated.
    vtab(*arguments, seeds=3, **options)
    assert seeds[2:] == [3]
    assert vtab(*arguments, **options).accuracies == {1: found.accuracies[1]}


@pytest.mark.slow
def test_the_command_of_vtab_prints_the_deviation(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vtab_run.Images, "conditions", lambda *_: None)
    monkeypatch.setattr(vtab_run._Runs, "train_and_test", lambda runs, task, seed: 0.5 + seed / 100)
    tiny_model().save(tmp_path / "m.keras")
    command = ("vtab", tmp_path / "m.keras", "--workdir", tmp_path / "vtab", "--tasks", "svhn")
    out = run(capsys, *command, "--image-size", 8, "--seeds", 3, "--seed", 1)
    # 51, 52 and 53 %.
    assert re.search(r"\nvtab/svhn +52\.00 ± 1\.00 %\n", out)
    assert re.search(r"\nVTAB-1k, mean of 1 of 19 +52\.00 ± 1\.00 %\n", out)
