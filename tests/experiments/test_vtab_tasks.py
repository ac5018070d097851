"""The tasks of VTAB-1k, and the file of their results."""

from functools import partial

import pytest

from keras_vit.checkpoints.trained import model_digest
from keras_vit.experiments.vtab_tasks import GROUPS, TASKS, find_tasks, run_tasks
from tests.fixtures.small_runs import no_training

SETTINGS = {"steps": 2500, "learning_rates": (0.01, 0.03)}


def edited(accuracies):
    return '{"settings": {"steps": 5}, "accuracies": {' + accuracies + "}}"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("run.json", ""),
        *(("results.json", text) for text in ("", "[]", '{"settings": {}}', edited('"a": null'))),
        *(("results.json", edited(f'"vtab/dtd": {value}')) for value in ("50.0", "NaN", "-1")),
        ("results.json", edited('"vtab/dtd": 0.1, "vtab/dtd": 0.2')),
    ],
)
def test_a_directory_of_something_else_or_edited_results(file, text, tmp_path):
    (tmp_path / file).write_text(text)
    message = "must be a new .*, or have the `results.json` of tasks that were run .* workdir="
    with pytest.raises(ValueError, match=message):
        run_tasks(["vtab/svhn"], no_training, tmp_path, {"steps": 5})


def test_results_are_kept_and_put_together(tmp_path, capsys):
    # Killed before anything else was written.
    (tmp_path / ".results.partial.0.json").write_text("{")
    tasks = ["vtab/dtd", "vtab/svhn", "vtab/dmlab"]
    other = partial(run_tasks, workdir=tmp_path, settings=SETTINGS, tell=no_training)

    def train(task):
        if task == "vtab/svhn":
            # Another process finishes a task meanwhile.
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


def test_tasks_are_of_the_same_model(tmp_path):
    """A file that is replaced under the same path is another model."""
    path, settings = tmp_path / "m.keras", {"model": "m.keras"}

    def run_with(task, **options):
        return run_tasks([task], {task: 0.5}.get, tmp_path / "vtab", {**settings, **options})

    path.write_bytes(b"a model")
    run_with("vtab/dmlab", **model_digest(path))
    path.write_bytes(b"another")
    with pytest.raises(ValueError, match="begun with. Received: model_digest='.*' instead of '"):
        run_with("vtab/resisc45", **model_digest(path))
    assert model_digest("ViT_L16/imagenet21k") == {}
