"""The notebooks run from the first cell to the last."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.backends("tensorflow", reason="notebooks are the same on every backend")
FOLDER = pathlib.Path(__file__).parent.parent / "examples"


def run(path, last=""):
    """Run a notebook and one more cell, and return what that one prints."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(path.parent))
    return "".join(output.get("text", "") for output in notebook.cells[-1].outputs)


# `nbclient` 0.10 makes an event loop of its own, and leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.examples
def test_model_fit_reaches_what_the_recipe_reaches():
    last = """
difference = history["val_loss"][-1] - run.history[-1]["val_loss"]
print(abs(difference) < 1e-5, history["val_accuracy"][-1] > 0.8)
"""
    assert run(FOLDER / "fine_tune.ipynb", last).split() == ["True", "True"]


# Per notebook what holds at its end.
ENDS = {
    "your_folder": "print(evaluation['accuracy'] > 0.8)",
    "from_tfvit": "print(same < 1e-5)",
    "look_inside": "print(rollout.shape == (2, 7, 7))",
    "serve": "print(difference < 1e-4 and found['error'][0] is None)",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.examples
@pytest.mark.parametrize("name", ENDS)
def test_notebook(name):
    assert run(FOLDER / f"{name}.ipynb", ENDS[name]).split() == ["True"]


def test_every_notebook_is_run_and_opens_in_colab():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {"fine_tune", *ENDS}
    for path in FOLDER.glob("*.ipynb"):
        assert f"/blob/main/examples/{path.name})" in path.read_text()
