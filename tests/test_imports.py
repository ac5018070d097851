"""Who may import whom (section 1 of the design), and what an import costs."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import keras_vit

PACKAGE = pathlib.Path(keras_vit.__file__).parent
MAY_IMPORT = {
    "core": set(),
    "layers": {"core"},
    "models": {"core", "layers"},
    "checkpoints": {"core", "layers", "models"},
    "data": {"core"},
    "training": {"core", "models", "checkpoints", "data"},
    "evaluation": {"core", "models", "checkpoints", "data"},
    "inspection": {"core", "models", "checkpoints", "data"},
    "experiments": {
        "core",
        "models",
        "checkpoints",
        "data",
        "training",
        "evaluation",
        "inspection",
    },
    "serving": {"core", "models", "checkpoints", "data"},
    "cli": {
        "core",
        "models",
        "checkpoints",
        "data",
        "training",
        "evaluation",
        "inspection",
        "experiments",
        "serving",
    },
}
MAY_IMPORT_TENSORFLOW = {"data", "serving"}
# Lazily: training runs without TensorFlow's strategies.
MAY_IMPORT_IT_TOO = {"training/distribution.py"}
FILES = sorted(path for folder in MAY_IMPORT for path in (PACKAGE / folder).rglob("*.py"))


COMMANDS = (
    "quickstart",
    "models",
    "checkpoints",
    "client",
    "convert",
    "inspect-checkpoint",
    "data",
    "deduplicate",
    "train",
    "evaluate",
    "fewshot",
    "vtab",
    "predict",
    "inspect",
    "study",
    "export",
)


def imported_modules(path):
    """Full names of the modules that a file imports, inside its functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_folder_has_its_rule():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_to_the_left(path):
    folder = path.relative_to(PACKAGE).parts[0]
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "keras_vit" and len(parts) > 1 and parts[1] != folder:
            assert parts[1] in MAY_IMPORT[folder], f"{folder} may not import {module}"
        if parts[0] == "tensorflow":
            name = str(path.relative_to(PACKAGE))
            may = folder in MAY_IMPORT_TENSORFLOW or name in MAY_IMPORT_IT_TOO
            assert may, f"{name} may not import TensorFlow"
        assert not module.startswith("keras.src"), "keras.src is private"


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_core_runs_without_importing_tensorflow():
    pytest.importorskip("jax", reason="the JAX backend is not installed")
    code = """
import sys
import numpy as np
import keras_vit
model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
model.predict(np.zeros((1, 32, 32, 3)), verbose=0)
keras_vit.features(model, np.zeros((1, 32, 32, 3)))
keras_vit.preprocess(np.zeros((1, 32, 32, 3)))
print(sorted({"tensorflow", "torch"} & set(sys.modules)))
"""
    assert run_python(code, KERAS_BACKEND="jax").strip() == "[]"


def test_import_adds_only_the_core_dependencies_to_keras():
    """`benchmarks/import_time.py` measures what that costs."""
    code = """
import sys
import keras
before = {name.partition(".")[0] for name in sys.modules}
import keras_vit
print(*sorted({name.partition(".")[0] for name in sys.modules} - before))
"""
    added = set(run_python(code).split()) - set(sys.stdlib_module_names)
    assert added <= {"keras_vit", "numpy", "scipy"}


def test_import_registers_all_that_a_saved_model_may_name():
    """`keras.models.load_model` finds layers, schedules, optimizers and losses."""
    code = """
import importlib
import keras
import keras_vit
registered = set(keras.saving.get_custom_objects())
for module in ("layers", "models", "training.fit", "serving.export", "data.images.augment"):
    importlib.import_module(f"keras_vit.{module}")
print("keras_vit>AdamW" in registered, set(keras.saving.get_custom_objects()) - registered)
"""
    assert run_python(code).strip() == "True set()"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([command, "--help"] for command in COMMANDS),
        ["train", "finetune", "--help"],
        ["mistyped"],
    ],
)
def test_help_and_mistakes_do_not_import_keras(arguments):
    code = f"""
import sys
sys.argv = ["keras-vit", *{arguments!r}]
from keras_vit.cli import main
try:
    main()
except SystemExit:
    print(sorted({{"keras", "tensorflow", "jax", "torch"}} & set(sys.modules)))
"""
    assert run_python(code).splitlines()[-1] == "[]"


def test_the_module_is_the_command():
    command = [sys.executable, "-X", "importtime", "-m", "keras_vit", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "quickstart" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "keras_vit.cli" in imported
    assert not {"keras", "tensorflow"} & imported
