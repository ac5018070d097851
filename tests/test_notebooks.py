"""The notebooks run from the first cell to the last."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.backends("tensorflow", reason="notebooks are the same on every backend")
FOLDER = pathlib.Path(__file__).parent.parent / "examples"


# Per notebook what holds at its end.
ENDS = {
    # `Model.fit` reaches what the recipe reaches.
    "fine_tune": (
        "print(abs(history['val_loss'][-1] - run.history[-1]['val_loss']) < 1e-5"
        " and history['val_accuracy'][-1] > 0.8)"
    ),
    "your_folder": "print(evaluation['accuracy'] > 0.8)",
    "from_tfvit": "print(same < 1e-5)",
    "look_inside": "print(rollout.shape == (2, 7, 7))",
    "serve": "print(difference < 1e-4 and found['error'][0] is None)",
}


# `nbclient` 0.10 makes an event loop of its own, and leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.examples
@pytest.mark.parametrize("name", ENDS)
def test_a_notebook_runs_and_its_end_is_true(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(ENDS[name]))
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(FOLDER))
    printed = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert printed.split() == ["True"]


def test_every_notebook_is_run_and_opens_in_colab():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(ENDS)
    for path in FOLDER.glob("*.ipynb"):
        assert f"/blob/main/examples/{path.name})" in path.read_text()
