"""A grid of runs: what it records, how it goes on, and when it is refused."""

import pytest

from keras_vit.experiments.grid import by_setting, grid, read_results

KINDS = ("class token", "mean of patches", "attention")
CONDITIONS = {"study": "poolings", "steps": 10}


def settings_of(*models):
    return {f"{model}, {kind}": model for model in models for kind in KINDS}


def measured(calls):
    """Return a function that measures, and records its calls."""

    def measure(setting, seed):
        calls.append((setting, seed))
        return {"exaflops": 1e-5, "accuracy": len(calls) / 100 + seed / 1000, "fewshot": None}

    return measure


def test_a_grid_runs_only_what_has_no_result(tmp_path):
    calls, path = [], tmp_path / "new"
    grid(settings_of("a"), [0], measured(calls), path, CONDITIONS)
    rows = grid(settings_of("a"), [0, 1], measured(calls), path, CONDITIONS)
    # Another model has no results yet.
    grid(settings_of("b", "a"), [0], measured(calls), path, CONDITIONS)
    assert calls == [("a", 0)] * 3 + [("a", 1)] * 3 + [("b", 0)] * 3
    assert by_setting(rows, "accuracy")["a, class token"] == [0.01, 0.041]
    assert [row["seed"] for row in read_results(path / "results.csv")] == [0] * 3 + [1] * 3 + [
        0
    ] * 3
    # The rows that are asked for.
    (row,) = grid({"a, attention": "a"}, [1], measured(calls), path, CONDITIONS)
    assert (row["setting"], row["seed"]) == ("a, attention", 1)


def test_a_stopped_grid_is_the_same_as_one_that_was_not(tmp_path):
    def stop(setting, seed):
        if seed == 1:
            raise KeyboardInterrupt
        return {"accuracy": seed / 10}

    settings, whole = settings_of("a"), lambda setting, seed: {"accuracy": seed / 10}
    with pytest.raises(KeyboardInterrupt):
        grid(settings, [0, 1], stop, tmp_path / "stopped", CONDITIONS)
    for name in ("stopped", "whole"):
        grid(settings, [0, 1], whole, tmp_path / name, CONDITIONS)
    stopped, at_once = (tmp_path / name / "results.csv" for name in ("stopped", "whole"))
    assert stopped.read_text() == at_once.read_text()


def test_processes_do_other_parts(tmp_path):
    settings, path = dict.fromkeys("abc"), tmp_path / "grid"

    def run(setting, seed):
        if not done:
            done.append(1)
            # Another process finishes a setting meanwhile.
            grid({"c": None}, [0], lambda *_: {"accuracy": 0.5}, path, CONDITIONS)
        return {"accuracy": 0.25}

    done = []
    rows = grid(settings, [0], run, path, CONDITIONS)
    assert by_setting(rows, "accuracy") == {"a": [0.25], "b": [0.25], "c": [0.5]}


def test_a_grid_is_of_one_thing(tmp_path):
    settings = settings_of("a")
    grid(settings, [0], measured([]), tmp_path, CONDITIONS)
    with pytest.raises(ValueError, match="begun with. Received: steps=20 instead of 10"):
        grid(settings, [0], measured([]), tmp_path, {**CONDITIONS, "steps": 20})
    with pytest.raises(ValueError, match="`resume` continues"):
        grid(settings, [0], measured([]), tmp_path, CONDITIONS, resume=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="holds run.json"):
        grid(settings, [0], measured([]), tmp_path / "run", CONDITIONS)


def test_facts_of_what_is_added_are_recorded(tmp_path):
    grid({"a": 1}, [0], measured([]), tmp_path, {"a digest": "0"})
    grid({"b": 1}, [0], measured([]), tmp_path, {"b digest": "1"})
    for name in "ab":
        with pytest.raises(ValueError, match=f"begun with. Received: {name} digest='2'"):
            grid({}, [], None, tmp_path, {f"{name} digest": "2"})
