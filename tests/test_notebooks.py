"""The notebooks run from the first cell to the last."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.backends("tensorflow", reason="notebooks are the same on every backend")
NOTEBOOKS = sorted((pathlib.Path(__file__).parent.parent / "examples").glob("*.ipynb"))


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
    (path,) = NOTEBOOKS
    last = """
difference = history["val_loss"][-1] - run.history[-1]["val_loss"]
print(abs(difference) < 1e-5, history["val_accuracy"][-1] > 0.8)
"""
    assert run(path, last).split() == ["True", "True"]
