"""Results of runs, of VTAB and of studies next to the rows of the paper."""

import dataclasses

import pytest

from keras_vit.experiments import reported
from keras_vit.experiments.grid import grid
from keras_vit.experiments.measured import measured_tables
from keras_vit.experiments.paper_results import paper_results
from keras_vit.experiments.paper_tables import CONTENTS
from keras_vit.experiments.study_run import Plan
from keras_vit.experiments.vtab_tables import TASKS
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES
from tests.fixtures.commands import run
from tests.fixtures.small_runs import save_small_model, small_recipe

CIFAR = "ViT_L16/jft300m/cifar10"


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    recipe = small_recipe(image_size=16, steps=4, warmup_steps=1)
    trainer.train(recipe, save_small_model(folder), "digits", folder / "run", strategy="none")
    return folder / "run"


def write_vtab(workdir, model, **changes):
    """Write results of VTAB with one accuracy, and return the path."""
    recipe = dataclasses.replace(RECIPES["finetune_vtab"], **changes)
    facts = {"model": model, "recipe": dataclasses.asdict(recipe), "datasets": []}
    grid(dict.fromkeys(TASKS), (0,), lambda *_: {"accuracy": 0.75}, workdir, facts)
    return str(workdir)


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
    assert "measured on images of 16x16 pixels instead of 384x384" in table.notes[0]
    # Other tables have other rows of the same name.
    (table,) = measured_tables("Table 5", [named])
    assert table.rows[0][3] == "99.38 %"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ("Table 2", "RUN", "no results of VTAB or of a study; name .* NAME=PATH: ViT_H14"),
        ("Table 9", "ViT_L16/jft300m/vtab=RUN", "the number of classes 10"),
        ("Table 5", "ViT_B16/jft300m/cifar10=RUN", "a row with the architecture ViT_L16"),
    ],
)
def test_runs_of_other_rows_are_refused(table, text, message, digits_run, monkeypatch):
    monkeypatch.setattr(reported, "builder_of", lambda model: "ViT_L16")
    with pytest.raises(ValueError, match=message):
        measured_tables(table, [text.replace("RUN", str(digits_run))])


def test_vtab_next_to_table_9(tmp_path):
    path = write_vtab(tmp_path, "ViT_L16/imagenet21k")
    (table,) = measured_tables("Table 9", [path])
    results = [row for row in paper_results("Table 9") if row.pretraining == "imagenet21k"]
    printed = {row.dataset: row.value for row in results}
    assert table.rows[: len(TASKS)] == tuple(
        (task, "75.00 %", f"{printed[task]} %", f"{75 - printed[task]:+.1f}") for task in TASKS
    )
    (table,) = measured_tables("Table 2", [path])
    assert table.rows == (("VTAB-1k, mean of 19", "75.00 %", "72.72 +- 0.21 %", "+2.28"),)


def test_vtab_of_a_named_row_tells_other_settings(tmp_path):
    path = write_vtab(tmp_path, "ViT_Ti16", image_size=32)
    (table,) = measured_tables("Figure 2", [f"ViT_H14/jft300m/vtab={path}"])
    assert table.rows[0][:3] == ("natural, mean of 7", "75.00 %", "86.7 %")
    assert table.rows[-1] == ("VTAB-1k, mean of 19", "75.00 %", "77.63 +- 0.23 %", "-2.63")
    assert table.notes[0].endswith("; other settings than the paper's: image_size")
    with pytest.raises(ValueError, match="VTAB for a model that has no row"):
        measured_tables("Table 9", [path])


@pytest.mark.parametrize(
    ("table", "kind", "model", "values", "found"),
    [
        (
            *("Table 6", "scaling", "ViT_B16", None),
            {"ViT_B16": "84.15 (ImageNet, 7 epochs); 224 (exaFLOPs, 7 epochs)"},
        ),
        (
            *("Table 7", "optimizers", "BiT_R50x1", None),
            {"BiT_R50x1, Adam": "89.33 (Average)", "BiT_R50x1, SGD": "88.79 (Average)"},
        ),
        (
            # The model may have sizes in parentheses, with commas between them.
            *("Table 8", "positions", "ViT_Ti16(depth=6, patch_size=4)"),
            ("none", "1-D, learned", "2-D, sines and cosines"),
            {
                "ViT_Ti16(depth=6, patch_size=4), none": "0.61382 (ImageNet)",
                "ViT_Ti16(depth=6, patch_size=4), 1-D, learned": "0.64206 (ImageNet)",
                "ViT_Ti16(depth=6, patch_size=4), 2-D, sines and cosines": "-",
            },
        ),
        (
            *("Table 5", "datasets", "ViT_B16", ("imagenet2012", "digits")),
            {"ViT_B16, imagenet2012": "98.13 (CIFAR-10)", "ViT_B16, digits": "-"},
        ),
    ],
)
def test_a_study_stands_next_to_its_table(table, kind, model, values, found, tmp_path):
    data = None if kind == "datasets" else "digits"
    plan = Plan(kind, "digits_pretrain", data, "runs", models=(model,), values=values)
    facts = {"study": kind, "finetune_data": {"name": "cifar10"}, "data x": {"name": "digits"}}
    grid(
        {setting.name: setting for setting in plan.settings},
        (0, 1),
        lambda _, seed: {"exaflops": 1e-5, "accuracy": 0.5 + seed / 10},
        tmp_path / kind,
        facts,
    )
    (shown,) = measured_tables(table, [str(tmp_path / kind)])
    measured = "2", "1e-05", "55.00 ± 7.07 %"
    assert shown.rows == tuple((*row, *measured) for row in found.items())


def test_the_command_prints_a_table(capsys):
    markdown = run(capsys, "study", "paper", "--figure", 3, "--markdown")
    assert "\n\n| model | ImageNet | ImageNet-21k | JFT-300M |\n| --- | ---: |" in markdown
    assert len(run(capsys, "study", "paper").splitlines()) > len(CONTENTS)
