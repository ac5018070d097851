"""The examples and the README's code run, and the README tells the truth."""

import pathlib
import re
import runpy
import shlex

import pytest

from keras_vit.cli import parse
from keras_vit.cli.models import COLUMNS, table_rows
from keras_vit.cli.tables import markdown_table
from tests.images import write_folder

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
README = (ROOT / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
SHELL_BLOCKS = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A working directory with a folder of images, as the README's reader has."""
    monkeypatch.chdir(tmp_path)
    return write_folder(tmp_path / "photos", ("cat", "dog"), count=10)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path, photos, monkeypatch):
    assert len(path.read_text().splitlines()) <= 60
    arguments = [str(photos)] if path.name.startswith("01") else []
    monkeypatch.setattr("sys.argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("block", range(len(PYTHON_BLOCKS)))
def test_python_of_the_readme(block, photos):
    # Later blocks go on with the names of earlier ones.
    names = {}
    for code in PYTHON_BLOCKS[: block + 1]:
        exec(compile(code, "README.md", "exec"), names)


def test_commands_of_the_readme_are_valid():
    lines = "\n".join(SHELL_BLOCKS).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("keras-vit ")]
    assert len(commands) >= 5
    for command in commands:
        assert type(parse(command[1:])).__name__.lower() == command[1]


def test_make_targets_of_the_readme_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"make ([a-z-]+)", README):
        assert target in targets


def test_table_of_models_is_generated():
    assert markdown_table(COLUMNS, table_rows(224, 1000)) in README
