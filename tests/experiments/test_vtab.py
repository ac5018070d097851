"""VTAB-1k: the tasks one after the other, on datasets that TensorFlow Datasets writes here."""

import dataclasses
import json
import re
import signal
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

import keras_vit
from keras_vit.cli.vtab import Vtab, describe_row, with_one_rate
from keras_vit.data import DATASETS, load
from keras_vit.evaluation.classification import evaluate
from keras_vit.experiments.digests import file_digest
from keras_vit.experiments.reported import TABLE_2, VTAB, find_reported
from keras_vit.experiments.vtab import GROUPS, TASKS, check_data, find_tasks, run_tasks
from keras_vit.experiments.vtab_tables import REPORTED, find_row, mean_accuracies, table_rows
from keras_vit.training.callbacks import SaveState
from keras_vit.training.recipes import RECIPES
from tests.cli.test_cli import error_of, run
from tests.data.test_tfds import made_up
from tests.fixtures.tiny import TINY

# One of each group, of which the original's validation and test splits are whole ones.
BUILT = ("vtab/dtd", "vtab/patch_camelyon", "vtab/kitti_distance")
RUN = BUILT[1:]
SPLITS = {"train": 810, "validation": 205, "test": 40}
SETTINGS = {"steps": 2500, "learning_rates": (0.01, 0.03)}


def build_dataset(name, data_dir, monkeypatch):
    """Examples with the dataset's own features; of two classes, one is dark and one is light."""
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
    keras.utils.set_random_seed(0)
    keras_vit.models.vision_transformer(**{**TINY, "depth": 1, "image_size": 8}).save(path)
    return path


@pytest.fixture
def command(start, data_dir, tmp_path):
    """A run of few steps; the tasks are out of order."""
    small = "--image-size 8 --batch-size 50 --steps 12 --warmup-steps 2 --learning-rate 0.3"
    tasks = ("--tasks", "kitti_distance", "vtab/patch_camelyon")
    options = ("--workdir", tmp_path / "vtab", "--data-dir", data_dir)
    return ["vtab", start, *options, *small.split(), *tasks]


def results(tmp_path):
    return json.loads((tmp_path / "vtab" / "results.json").read_text())["accuracies"]


def no_training(*args, **kwargs):
    raise AssertionError("nothing is to be trained")


@pytest.mark.examples
def test_tasks_are_run_once_and_go_on_where_they_were_stopped(
    command, tmp_path, capsys, monkeypatch, data_dir
):
    save, batches = SaveState.on_train_batch_end, []

    def stop_once(self, batch, logs):
        batches.append(self.states.directory.parent.name)
        if batches.count("kitti_distance") == 7:
            signal.raise_signal(signal.SIGTERM)
        save(self, batch, logs)

    monkeypatch.setattr(SaveState, "on_train_batch_end", stop_once)
    with pytest.raises(SystemExit) as stopped:
        run(capsys, *command, "--keep-models")
    assert stopped.value.code == 143
    # It can tell light from dark.
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
        assert facts["recipe"]["image_size"] == 8
        model = keras.models.load_model(directory / "last.keras")
        test = load(task, "test", 8, 40, data_dir=data_dir)
        assert accuracies[task] == pytest.approx(evaluate(model, test)["accuracy"])
        assert re.search(rf"\n{task} +{100 * accuracies[task]:.2f} %\n", out)
    mean = 100 * np.mean([accuracies[task] for task in RUN])
    assert re.search(rf"\nVTAB-1k, mean of 2 of 19 +{mean:.2f} %\n", out)
    monkeypatch.setattr("keras_vit.training.fit.fit", no_training)
    # The data are not needed any more.
    again = run(capsys, *command, "--data-dir", tmp_path, "--markdown")
    assert again.count("done before") == 2
    assert f"| VTAB-1k, mean of 2 of 19 | {mean:.2f} % |" in again
    # What is not asked to be kept is deleted.
    assert not list((tmp_path / "vtab").rglob("*.keras"))
    assert not list((tmp_path / "vtab").rglob("states"))
    assert "steps=13 instead of 12" in error_of(capsys, *command, "--steps", "13")


@pytest.mark.large
def test_a_learning_rate_is_chosen_on_200_images(command, tmp_path, capsys, monkeypatch):
    trained = []

    def fit(recipe, model, data, workdir, facts, resume, keep):
        counts = [dataset and dataset.num_examples for dataset in data]
        where = str(workdir.relative_to(tmp_path / "vtab"))
        trained.append((where, recipe.learning_rate, *counts, facts.get("sweep")))
        return [{"val_accuracy": accuracies[recipe.learning_rate]}]

    accuracies = {0.1: 0.5, 0.2: 0.75, 0.4: 0.25}
    monkeypatch.setattr("keras_vit.training.fit.fit", fit)
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


def test_data_that_are_not_there(command, tmp_path, capsys, monkeypatch, data_dir):
    def fail(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr("requests.Session.get", fail)
    monkeypatch.setattr("keras_vit.training.fit.fit", no_training)
    with pytest.raises(SystemExit):
        run(capsys, *command, "--tasks", "dtd", "sun397", "resisc45")
    # Behind the bars of TensorFlow Datasets.
    line = capsys.readouterr().err.splitlines()[-1]
    assert "2 of 3 that cannot be loaded: vtab/sun397 (The dataset sun397 could not" in line
    assert "vtab/resisc45 (The dataset resisc45 must be downloaded by hand" in line
    assert not (tmp_path / "vtab").exists()


def test_files_that_were_not_copied(data_dir, tmp_path):
    (tmp_path / "dtd").symlink_to(data_dir / "dtd")
    check_data(["vtab/dtd"], tmp_path)
    copied = tmp_path / "patch_camelyon"
    for path in (data_dir / "patch_camelyon").rglob("*.*"):
        if path.is_file() and "test" not in path.name:
            target = copied / path.relative_to(data_dir / "patch_camelyon")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"1 of 2 .* loaded: vtab/patch_camelyon \(.*No such file"):
        check_data(["vtab/dtd", "vtab/patch_camelyon"], tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "cifar10"], "`tasks` must be among caltech101, .*'cifar10'"),
        (["--loss", "pixels"], "`loss` must be of classes.*loss='pixels'"),
        (["--warmup-steps", "12"], "`warmup_steps` must be smaller"),
        (["--compare", "ViT_L16/jft300m/vtab"], "`--compare` .* architecture, which is none"),
        (["--compare", "ViT_L16"], "`--compare` must name what has a reported accuracy"),
        (["--image-size", "9"], "Received: .*9"),
        (["--batch-size", "50", "--accumulation-steps", "3"], "`accumulation_steps` must divide"),
    ],
)
def test_wrong_commands(command, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("keras_vit.experiments.vtab.check_data", no_training)
    assert re.search(message, error_of(capsys, *command, *arguments))
    assert not (tmp_path / "vtab").exists()


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"settings": {}}', '{"accuracies": {"a": null}, "settings": {}}']
)
def test_a_directory_of_something_else(text, tmp_path):
    (tmp_path / ("run.json" if text is None else "results.json")).write_text(text or "")
    with pytest.raises(ValueError, match=r"`workdir` must be a new or empty .* Received: workdir="):
        run_tasks(["vtab/dtd"], no_training, tmp_path, SETTINGS)


def test_results_are_kept_and_put_together(tmp_path, capsys):
    # Killed before anything else was written.
    (tmp_path / ".results.partial.0.json").write_text("{")
    tasks = ["vtab/dtd", "vtab/svhn", "vtab/dmlab"]
    other = partial(run_tasks, workdir=tmp_path, settings=SETTINGS, tell=no_training)

    def train(task):
        if task == "vtab/svhn":
            # What another process has done meanwhile.
            other(["vtab/dmlab"], {"vtab/dmlab": 0.5}.get, tell=str)
            raise KeyboardInterrupt
        return 0.25

    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, train, tmp_path, SETTINGS)
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] vtab/dtd ...",
        "[1/3] vtab/dtd: 25.00 %",
        "[2/3] vtab/svhn ...",
    ]
    done = []
    found = run_tasks(tasks, {"vtab/svhn": 0.75}.get, tmp_path, SETTINGS, on_done=done.append)
    assert found == {"vtab/dtd": 0.25, "vtab/dmlab": 0.5, "vtab/svhn": 0.75}
    assert done == tasks
    with pytest.raises(ValueError, match=r"with.*learning_rates=None instead of \[0.01, 0.03\]"):
        run_tasks(tasks, no_training, tmp_path, {"steps": 2500})


def test_tasks_by_name_and_group():
    assert find_tasks() == TASKS
    assert len(TASKS) == 19
    assert find_tasks(["structured", "dtd", "dmlab"]) == ("vtab/dtd", *GROUPS["structured"])


def test_means_by_group():
    accuracies = dict(zip(TASKS, np.arange(19) / 100, strict=True))
    means = mean_accuracies(accuracies)
    # 0 to 6, 7 to 10, 11 to 18; and each task counts once, where the mean of means is 8.67.
    assert [round(100 * mean, 6) for mean, _ in means.values()] == [3, 8.5, 14.5, 9]
    *_, natural, specialized, structured, overall = table_rows(accuracies)
    assert natural == ("natural, mean of 7", "3.00 %")
    assert specialized == ("specialized, mean of 4", "8.50 %")
    assert structured == ("structured, mean of 8", "14.50 %")
    assert overall == ("VTAB-1k, mean of 19", "9.00 %")


@pytest.mark.parametrize("name", REPORTED)
def test_the_papers_tasks_have_the_mean_of_its_table_2(name):
    reported = find_reported(name)
    mean, tasks = mean_accuracies(REPORTED[name])["VTAB-1k"]
    assert tasks == TASKS
    # Of values with one decimal.
    assert mean == pytest.approx(reported.accuracy, abs=0.03)
    rows = list(table_rows({task: value / 100 for task, value in REPORTED[name].items()}, reported))
    assert rows[-1] == (
        *("VTAB-1k, mean of 19", f"{mean:.2f} %", str(reported)),
        f"{mean - reported.accuracy:+.2f}",
    )
    assert all(float(row[-1]) == 0 for row in rows[:-1])


@pytest.mark.parametrize(
    ("name", "task", "percent"),
    [
        ("ViT_H14/jft300m/vtab", "vtab/svhn", 88.9),
        ("ViT_H14/jft300m/vtab", "vtab/diabetic_retinopathy", 76.6),
        ("ViT_L16/jft300m/vtab", "vtab/dmlab", 49.7),
        ("ViT_L16/imagenet21k/vtab", "vtab/smallnorb_elevation", 41.7),
    ],
)
def test_columns_of_the_papers_table(name, task, percent):
    assert REPORTED[name][task] == percent


def test_the_paper_breaks_down_three_of_its_models():
    others = {row.name for row in TABLE_2 if row.dataset == VTAB} - set(REPORTED)
    assert others == {"BiT_R152x4/jft300m/vtab"}
    rows = list(table_rows({"vtab/dtd": 0.5}, find_reported(*others)))
    assert {row[2:] for row in rows} == {("-", "-")}


def test_the_row_that_a_model_tells():
    row = find_reported("ViT_L16/imagenet21k/vtab")
    assert find_row("ViT_L16/imagenet21k") == row
    assert find_row("gs://vit_models/imagenet21k/ViT-L_16.npz") == row
    assert find_row("ViT_B16/imagenet21k") is None
    paper = RECIPES["finetune_vtab"]
    assert "other settings" not in describe_row(row, paper)
    assert describe_row(row, paper.smoke()).endswith(
        "; other settings than the paper's: image_size, batch_size, warmup_steps, steps"
    )


def test_one_learning_rate_is_no_choice():
    recipe = RECIPES["finetune_cifar"]
    assert with_one_rate(recipe) == recipe
    one = with_one_rate(dataclasses.replace(recipe, learning_rates=(1,)))
    assert (one.learning_rate, one.learning_rates) == (1, ())


def test_tasks_are_of_the_same_model(tmp_path, caplog):
    """A file that is replaced under the same path is another model."""
    path, settings = tmp_path / "m.keras", {"model": "m.keras"}

    def run_with(task, **options):
        return run_tasks([task], {task: 0.5}.get, tmp_path / "vtab", {**settings, **options})

    path.write_bytes(b"a model")
    run_with("vtab/dtd")
    caplog.clear()
    # As a version before digests left it.
    run_with("vtab/svhn", **file_digest(path))
    (record,) = [record for record in caplog.records if record.name == "keras_vit"]
    assert "did not record digests" in record.getMessage()
    run_with("vtab/dmlab", **file_digest(path))
    path.write_bytes(b"another")
    with pytest.raises(ValueError, match="begun with. Received: model_digest='.*' instead of '"):
        run_with("vtab/resisc45", **file_digest(path))
    assert len(caplog.records) == 1
    assert file_digest("ViT_L16/imagenet21k") == {}


@pytest.mark.parametrize("other", ["config.json", "model-2.safetensors"])
def test_files_next_to_weights_are_of_the_model(other, tmp_path):
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json"):
        (tmp_path / name).write_text("{}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    before = file_digest(index)
    assert before == file_digest(index)
    (tmp_path / other).write_text('{"num_attention_heads": 2}')
    assert file_digest(index) != before


def test_the_command_knows_its_model(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.experiments.vtab.check_data", lambda *_: None)
    path = tmp_path / "m.keras"
    keras_vit.models.vision_transformer(**{**TINY, "depth": 1, "image_size": 8}).save(path)
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], image_size=8)
    command = Vtab(str(path), tmp_path / "vtab", ("dtd",), recipe)
    _, settings, _ = command._check()
    assert file_digest(path).items() <= settings.items()


@pytest.mark.parametrize(
    "accuracies",
    ['"vtab/dtd": 50.0', '"vtab/dtd": NaN', '"vtab/dtd": -1', '"vtab/dtd": 0.1, "vtab/dtd": 0.2'],
)
def test_edited_results(accuracies, tmp_path):
    text = '{"settings": {"steps": 5}, "accuracies": {' + accuracies + "}}"
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match="have the `results.json` of tasks that were run in it"):
        run_tasks(["vtab/svhn"], no_training, tmp_path, {"steps": 5})
