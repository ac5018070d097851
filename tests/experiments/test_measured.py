"""Results of runs, of VTAB and of studies next to the rows of the paper."""

import dataclasses
import json
import types

import pytest

from keras_vit.experiments import reported, vtab_tables
from keras_vit.experiments.grid import grid
from keras_vit.experiments.measured import measured_tables
from keras_vit.experiments.paper_results import paper_results
from keras_vit.experiments.reported import TABLE_2, TABLE_5, reported_of_run
from keras_vit.experiments.study_run import make_plan
from keras_vit.experiments.vtab_tables import TASKS
from keras_vit.training import job
from keras_vit.training.recipes import RECIPES
from tests.fixtures.commands import error_of, run
from tests.fixtures.small_runs import save_small_model, small_recipe

CIFAR = "ViT_L16/jft300m/cifar10"


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    recipe = small_recipe(image_size=16, steps=4, warmup_steps=1)
    job.train(recipe, save_small_model(folder), "digits", folder / "run", strategy="none")
    return folder / "run"


@pytest.fixture
def vtab_directory(tmp_path):
    """Return a function that writes results of VTAB with one accuracy."""

    def write(tasks=TASKS, model="ViT_L16/imagenet21k", **changes):
        recipe = dataclasses.replace(RECIPES["finetune_vtab"], **changes)
        facts = {"model": model, "dtype": None, "recipe": dataclasses.asdict(recipe)}
        workdir = tmp_path / "vtab"
        settings = dict.fromkeys(tasks)
        grid(settings, (0,), lambda *_: {"accuracy": 0.75}, workdir, {**facts, "datasets": []})
        return str(workdir)

    return write


@pytest.fixture
def study_directory(tmp_path):
    """Return a function that writes a study with the accuracies 0.5 and 0.6 of two seeds."""

    def write(kind, *names, finetune_data="cifar10", **columns):
        def measure(setting, seed):
            return {**columns, "exaflops": 1e-5, "accuracy": 0.5 + seed / 10}

        facts = {"study": kind, "data": "digits", "finetune_data": finetune_data}
        grid(dict.fromkeys(names), (0, 1), measure, tmp_path / kind, facts)
        return str(tmp_path / kind)

    return write


@pytest.mark.slow
def test_runs_are_evaluated_and_averaged(digits_run, monkeypatch, capsys):
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_L16")
    out = run(capsys, "evaluate", digits_run)
    accuracy = next(float(line[10:]) for line in out.splitlines() if line.startswith("accuracy: "))
    named = f"{CIFAR}={digits_run}"
    (table,) = measured_tables("Table 2", [named, named])
    ((name, runs, measured, printed, difference),) = table.rows
    assert (name, runs, printed) == (CIFAR, "2", "99.42 +- 0.03 %")
    assert measured == f"{100 * accuracy:.2f} ± 0.00 %"
    assert float(difference) == pytest.approx(100 * accuracy - 99.42, abs=0.011)
    assert len(table.notes) == 2
    assert "measured on images of 16x16 pixels instead of 384x384" in table.notes[0]
    # Other tables have other rows of the same name.
    (table,) = measured_tables("Table 5", [named])
    assert table.rows[0][3] == "99.38 %"
    out = run(capsys, "study", "paper", "--table", 5, "--measured", named, "--markdown")
    assert f"| {CIFAR} | 1 | {100 * accuracy:.2f} % | 99.38 % |" in out


def test_a_run_that_does_what_the_paper_did():
    recipe = json.loads(json.dumps(dataclasses.asdict(RECIPES["finetune_cifar"])))
    facts = {"model": "ViT_B16/imagenet21k", "data": "cifar100", "split": "train"}
    model = types.SimpleNamespace(input_shape=(None, 384, 384, 3))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_B16")
        found = {
            table: reported_of_run({**facts, "recipe": recipe}, model, "cifar100", table)
            for table in (TABLE_2, TABLE_5)
        }
    assert found[TABLE_2] is None
    assert (found[TABLE_5].accuracy, found[TABLE_5].image_size) == (91.67, 384)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ("Table 2", "RUN", "a run that does not do what a row did: .*small.keras on digits"),
        ("Table 3", "RUN", "with results of a row of Table 3 .* a run$"),
        ("Table 9", "RUN", "with results of a row of Table 9 .* a run$"),
        ("Table 2", "ViT_L16/jft/cifar10=RUN", f"a row of Table 2 .*such as {CIFAR}"),
        ("Table 1", f"{CIFAR}=RUN", "a row of Table 1 .*and this one has none"),
        ("Table 2", "ViT_L16/jft300m/cifar100=RUN", "a dataset of 10 classes"),
        ("Table 5", "ViT_B16/jft300m/cifar10=RUN", "the model's architecture, ViT_L16"),
        ("Table 2", "missing", "no results .yet. of a run, of VTAB or of a study"),
    ],
)
def test_wrong_runs(table, text, message, digits_run, monkeypatch):
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_L16")
    with pytest.raises(ValueError, match=message):
        measured_tables(table, [text.replace("RUN", str(digits_run))])


def test_vtab_next_to_table_9(vtab_directory):
    path = vtab_directory()
    (table,) = measured_tables("Table 9", [path])
    assert table.columns == ("task", "measured", "reported", "difference")
    results = [row for row in paper_results("Table 9") if row.pretraining == "imagenet21k"]
    printed = {row.dataset: row.value for row in results}
    assert table.rows[: len(TASKS)] == tuple(
        (task, "75.00 %", f"{printed[task]} %", f"{75 - printed[task]:+.1f}") for task in TASKS
    )
    assert [row[0] for row in table.rows[-2:]] == ["structured, mean of 8", "VTAB-1k, mean of 19"]
    assert "other settings" not in table.notes[0]
    (table,) = measured_tables("Table 2", [path])
    assert table.rows == (("VTAB-1k, mean of 19", "75.00 %", "72.72 +- 0.21 %", "+2.28"),)


@pytest.mark.slow
def test_vtab_of_a_named_row(vtab_directory, monkeypatch):
    """The architecture is that of the model that the directory records."""
    path = vtab_directory(model="ViT_Ti16", image_size=32)
    named = f"ViT_H14/jft300m/vtab={path}"
    with pytest.raises(ValueError, match="of the model's architecture, ViT_Ti16"):
        measured_tables("Figure 2", [named])
    monkeypatch.setattr(vtab_tables, "builder_of", lambda model: "ViT_H14")
    (table,) = measured_tables("Figure 2", [named])
    assert table.rows[0][:3] == ("natural, mean of 7", "75.00 %", "86.7 %")
    assert table.rows[-1] == ("VTAB-1k, mean of 19", "75.00 %", "77.63 +- 0.23 %", "-2.63")
    assert table.notes[0].endswith("; other settings than the paper's: image_size")


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("Table 9", {"model": "ViT_Ti16"}, "results of VTAB for a model that has no row"),
        ("Figure 2", {}, "results of VTAB for a model that has no row; NAME=PATH"),
        ("Table 5", {}, "results of VTAB for a model that has no row"),
        ("Table 2", {"tasks": TASKS[:3]}, "a part of the tasks: VTAB-1k, mean of 3 of 19"),
    ],
)
def test_wrong_results_of_vtab(table, options, message, vtab_directory):
    with pytest.raises(ValueError, match=message):
        measured_tables(table, [vtab_directory(**options)])


@pytest.mark.parametrize("name", ["Table 6", "Figure 5"])
def test_a_study_of_models(name, study_directory):
    (table,) = measured_tables(name, [study_directory("scaling", "ViT_Ti16", "ViT_B16", "ViT_L16")])
    assert table.columns == ("setting", "reported", "seeds", "exaFLOPs", "test accuracy")
    assert table.title.endswith("study scaling on digits")
    measured = "2", "1e-05", "55.00 ± 7.07 %"
    assert table.rows == (
        ("ViT_Ti16", "-", *measured),
        ("ViT_B16", "7 epochs: 84.15 % and 224 exaFLOPs", *measured),
        (
            "ViT_L16",
            "7 epochs: 86.30 % and 783 exaFLOPs; 14 epochs: 87.12 % and 1,567 exaFLOPs",
            *measured,
        ),
    )


def names_of(kind, model, **options):
    """The settings of a study, as it writes them."""
    data = None if kind == "datasets" else "digits"
    plan = make_plan(kind, "digits_pretrain", data, "runs", models=(model,), **options)
    return [setting.name for setting in plan.settings]


def test_a_study_of_position_embeddings(study_directory):
    """The model may have sizes in parentheses, with commas between them."""
    names = names_of("positions", "ViT_Ti16(patch_size=4, depth=6)")
    (table,) = measured_tables("Table 8", [study_directory("positions", *names)])
    found = {row[0].partition("), ")[2]: row[1] for row in table.rows}
    assert found["none"] == "0.61382 (5-shot accuracy on ImageNet, from 0 to 1)"
    assert found["1-D, learned"] == "0.64206 (5-shot accuracy on ImageNet, from 0 to 1)"
    assert found["2-D, learned"] == "0.64001 (5-shot accuracy on ImageNet, from 0 to 1)"
    assert found["2-D, sines and cosines"] == "-"


def test_a_study_of_optimizers(study_directory):
    names = names_of("optimizers", "BiT_R50x1")
    (table,) = measured_tables("Table 7", [study_directory("optimizers", *names)])
    expected = [f"{value} %, average of 5 datasets" for value in ("89.33", "88.79")]
    assert [row[1] for row in table.rows] == expected


@pytest.mark.parametrize(
    ("table", "data", "values"),
    [
        ("Table 5", "cifar10", ["98.13 % on CIFAR-10", "98.95 % on CIFAR-10", "-"]),
        ("Figure 3", "imagenet2012", ["77.91 % on ImageNet", "83.97 % on ImageNet", "-"]),
    ],
)
def test_a_study_of_pretraining_sets(table, data, values, study_directory):
    """It is compared on the dataset of the fine-tuning."""
    datasets = ("imagenet2012", "imagenet21k", "digits")
    names = names_of("datasets", "ViT_B16", values=datasets)
    path = study_directory("datasets", *names, finetune_data=data, finetuned=0.75)
    (shown,) = measured_tables(table, [path])
    assert [row[1] for row in shown.rows] == values
    assert shown.columns[-2:] == ("fine-tuned accuracy", "test accuracy")


def test_figure_3_has_no_other_dataset_of_the_fine_tuning(study_directory):
    path = study_directory("datasets", *names_of("datasets", "ViT_B16", values=("imagenet21k",)))
    with pytest.raises(ValueError, match="none of whose settings is in Figure 3"):
        measured_tables("Figure 3", [path])


def test_a_study_of_data_sizes(study_directory, capsys):
    names = "BiT_R50x1, 3 %", "ViT_S32, 100 %", "ViT_S32, 50 %", "ViT_Ti16, 30 %"
    path = study_directory("data-size", *names, images=100.0, fewshot=0.25)
    (table,) = measured_tables("Figure 4", [path])
    assert [row[1] for row in table.rows] == ["drawn, not printed"] * 2 + ["-"] * 2
    assert table.columns[-2:] == ("few-shot accuracy", "test accuracy")
    out = run(capsys, "study", "paper", "--figure", 4, "--measured", path)
    assert "25.00 ± 0.00 %" in out


@pytest.mark.parametrize(
    ("table", "kind", "setting"),
    [
        ("Table 8", "poolings", "ViT_B16, class token"),
        ("Table 8", "scaling", "ViT_B16"),
        ("Table 6", "scaling", "ViT_Ti16"),
        ("Table 7", "optimizers", "ViT_Ti16, Adam"),
        ("Figure 4", "data-size", "ViT_B16, 100 %"),
    ],
)
def test_studies_without_a_row(table, kind, setting, study_directory, capsys):
    flag, number = f"--{table.split()[0].lower()}", table.split()[1]
    path = study_directory(kind, setting)
    message = error_of(capsys, "study", "paper", flag, number, "--measured", path)
    assert f"a row of {table} of the paper." in message
    assert f"study {kind} on digits, none of whose settings is in {table}" in message
    assert ("BiT_R50x1" in message) == (table != "Table 8")


def test_the_command(capsys):
    lines = run(capsys, "study", "paper").splitlines()
    assert len(lines) == 13 + 3
    assert lines[0].split() == ["Table", "1", "sizes", "of", "the", "models"]
    assert "ViT-H/14 on ObjectNet: 61.7 % top-1, 82.1 % top-5" in lines[13]
    out = run(capsys, "study", "paper", "--table", 2)
    assert out.startswith("Table 2 of the ViT paper")
    assert "88.4 / 88.5" in out and "The paper prints different results of ViT-H/14" in out
    markdown = run(capsys, "study", "paper", "--figure", 3, "--markdown")
    assert "\n\n| model | ImageNet | ImageNet-21k | JFT-300M |\n| --- | ---: |" in markdown
    assert "One of `--table`" in error_of(capsys, *("study", "paper", "--table", 1, "--figure", 2))
    assert "One of `--table`" in error_of(capsys, "study", "paper", "--measured", "runs")
