"""The table of a study: what it holds, and when it is refused."""

import csv

import pytest

from keras_vit.experiments.studies import Setting
from keras_vit.experiments.studies.table import by_setting, run_study

# The kinds of a study of poolings.
KINDS = ("class token", "mean of patches", "attention")
FACTS = {"study": "poolings", "steps": 10}


def settings_of(*models):
    return [Setting(f"{model}, {kind}", model) for model in models for kind in KINDS]


def measured(calls):
    """Return a function that measures, and records its calls."""

    def measure(setting, seed):
        calls.append((setting.name, seed))
        accuracy = len(setting.name) / 100 + seed / 1000
        return {"images": 100 * setting.fraction, "exaflops": 1e-5, "accuracy": accuracy}

    return measure


def test_a_study_goes_on(tmp_path):
    settings, calls = settings_of("a"), []
    rows = run_study(settings, [0], measured(calls), tmp_path / "new", FACTS)
    assert calls == [(setting.name, 0) for setting in settings]
    calls.clear()
    rows = run_study(settings, [0, 1], measured(calls), tmp_path / "new", FACTS)
    assert calls == [(setting.name, 1) for setting in settings]
    assert by_setting(rows, "accuracy")["a, class token"] == pytest.approx([0.14, 0.141])
    # Another model has no results yet.
    calls.clear()
    run_study(settings_of("b", "a"), [0], measured(calls), tmp_path / "new", FACTS)
    assert [name for name, _ in calls] == ["b, class token", "b, mean of patches", "b, attention"]
    with (tmp_path / "new" / "study.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["seed"] for row in table] == ["0"] * 3 + ["1"] * 3 + ["0"] * 3
    # The rows that are asked for, in that order.
    rows = run_study(settings[1:2], [1], measured(calls), tmp_path / "new", FACTS)
    assert [(row["setting"], row["seed"]) for row in rows] == [("a, mean of patches", 1)]


def test_what_fails_at_once_is_no_study(tmp_path):
    def fail(setting, seed):
        raise ValueError("the warm-up is too long")

    settings = settings_of("a")
    with pytest.raises(ValueError, match="too long"):
        run_study(settings, [0], fail, tmp_path / "new", FACTS)
    run_study(settings, [0], measured([]), tmp_path / "new", {**FACTS, "steps": 20})


def test_a_study_is_of_one_thing(tmp_path):
    settings = settings_of("a")
    run_study(settings, [0], measured([]), tmp_path, FACTS)
    with pytest.raises(ValueError, match="begun with. Received: steps=20 instead of 10"):
        run_study(settings, [0], measured([]), tmp_path, {**FACTS, "steps": 20})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="`workdir` must be a new directory"):
        run_study(settings, [0], measured([]), tmp_path / "run", FACTS)


def test_class_order_does_not_change_a_study(tmp_path):
    settings = [Setting("a", "a")]
    run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("1", "0")})
    run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("0", "1")})
    with pytest.raises(ValueError, match="classes=.* instead of"):
        run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("0", "2")})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        *(
            (f"setting,seed,accuracy\na,0,{rows}\n", "one row for each setting and seed")
            for rows in ("0.5\na,0,0.5", "nan", "50", "-0.1", "inf")
        ),
        ("setting,seed,accuracy\na,0,high\n", "the columns setting and seed"),
        ("setting,accuracy\na,1\n", "the columns setting and seed"),
        ("a,b\n1,2\n", "the columns setting and seed"),
    ],
)
def test_an_edited_table(table, message, tmp_path):
    run_study([Setting("a", "a")], [0], measured([]), tmp_path, FACTS)
    (tmp_path / "study.csv").write_text(table)
    with pytest.raises(ValueError, match=f"table must have .*{message}.*study.csv"):
        run_study([Setting("a", "a")], [0], measured([]), tmp_path, FACTS)
