"""Who may import whom, and what an import costs."""

import ast
import functools
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import keras_vit
from tests.fixtures.commands import run_python

pytestmark = pytest.mark.backends(
    "tensorflow", reason="the processes that it starts choose backends"
)

PACKAGE = pathlib.Path(keras_vit.__file__).parent
ALL = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
# Which wings a wing may import, apart from `core` and `version`.
MAY_IMPORT = {
    "core": set(),
    "version": set(),
    "layers": set(),
    "models": {"layers"},
    "checkpoints": {"layers", "models"},
    "builders": {"models", "checkpoints"},
    "data": set(),
    "training": {"models", "checkpoints", "builders", "data"},
    "evaluation": {"models", "checkpoints", "data"},
    "inspection": {"models", "checkpoints", "data"},
    "experiments": {
        *("layers", "models", "checkpoints", "builders"),
        *("data", "training", "evaluation", "inspection"),
    },
    "serving": {"layers", "models", "checkpoints", "data", "inspection"},
    "distributed": {"data", "serving"},
    "cli": ALL - {"__init__", "__main__"},
    "__init__": ALL,
    "__main__": {"cli"},
}
MAY_IMPORT_TENSORFLOW = {"data", "serving"}
# Lazily: training runs without TensorFlow's strategies, and layers on the other backends.
MAY_IMPORT_IT_TOO = {
    "training/distribution.py",
    "layers/mlp.py",
    "experiments/benchmark_process.py",
}
FILES, STUBS = sorted(PACKAGE.rglob("*.py")), sorted(PACKAGE.rglob("__init__.pyi"))
# Private names of Keras: the seed that it reads on torch, and the variables that torch tracks. The
# index of a variable is what the docstring of `keras.optimizers.Optimizer` tells subclasses to use.
PRIVATE_NAMES = {
    "layers/layer.py": {"_initial_seed", "_track_variables"},
    "training/optimizers.py": {"_get_variable_index"},
}
FORBIDDEN = r"sys\.meta_path|__class__ = |/proc\b|\b(keras|tf|jax|torch|tyro|ray)\._[a-z]|\.src\."

COMMANDS = """
quickstart models checkpoints client convert inspect-checkpoint data deduplicate train resume
evaluate fewshot vtab benchmark predict search inspect study export
"""


def imported_modules(path):
    """Full names of the modules that a file imports, inside its functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def nodes_of(path):
    return list(ast.walk(ast.parse(path.read_text())))


def is_own(node):
    """Whether a node defines a function or method, or sets an attribute."""
    return isinstance(node, ast.FunctionDef) or isinstance(getattr(node, "ctx", None), ast.Store)


@functools.cache
def own_names():
    """Names that this package defines; `_exit` and `_replace` are documented by Python."""
    nodes = [node for path in FILES for node in nodes_of(path) if is_own(node)]
    names = {getattr(node, "attr", getattr(node, "name", None)) for node in nodes}
    return {"_exit", "_replace", *names}.difference(*PRIVATE_NAMES.values())


def private_names(path):
    """Names with an underscore of attributes that this package does not define."""
    names = {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}
    return {name for name in names if re.match("_[a-z]", name)} - own_names()


def test_imports_go_down():
    for path in FILES:
        name = str(path.relative_to(PACKAGE))
        wing = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        allowed = {wing, "core", "version", *MAY_IMPORT[wing]}
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] == "keras_vit":
                assert len(parts) > 1, f"{name} must import from a wing"
                assert parts[1] in allowed, f"{name} may not import {module}"
            if parts[0] == "tensorflow":
                may = wing in MAY_IMPORT_TENSORFLOW or name in MAY_IMPORT_IT_TOO
                assert may, f"{name} may not import TensorFlow"


def test_nothing_private_of_other_packages():
    for path in FILES:
        name = str(path.relative_to(PACKAGE))
        assert private_names(path) == PRIVATE_NAMES.get(name, set()), name
        assert not re.search(FORBIDDEN, path.read_text()), name


@pytest.mark.parametrize("path", STUBS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_public_names_stand_in_a_stub(path):
    """`lazy_loader` reads it, and so do type checkers and editors."""
    package = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).parts[:-1]))
    imported = [alias for node in nodes_of(path) for alias in getattr(node, "names", ())]
    names = [alias.name for alias in imported]
    assert package.__all__ == dir(package) == sorted(names)
    assert names == [alias.asname for alias in imported]
    for name in names:
        assert getattr(package, name) is not None


def test_every_variant_has_a_public_builder():
    builders = {name for name in keras_vit.__all__ if name.startswith(("ViT_", "R", "BiT_"))}
    assert builders == {row.name for row in keras_vit.list_variants()}


def test_a_function_is_not_replaced_by_its_module():
    """Python binds a module to its package when it is imported."""
    importlib.import_module("keras_vit.experiments.sweep")
    assert inspect.isfunction(keras_vit.experiments.sweep)


def test_pages_name_public_names():
    """What a page writes as `keras_vit.name` exists."""
    for page in (PACKAGE.parent / "README.md", *PACKAGE.parent.glob("docs/**/*.md")):
        names = set(re.findall(r"\bkeras_vit\.(\w+)", page.read_text()))
        assert names <= {*keras_vit.__all__, *ALL}, page.name


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert added <= {"keras_vit", "lazy_loader", "numpy", "scipy", "wrapt"}


# After Keras, before it, and where a module that the layers need imports Keras.
@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [
        "keras, keras_vit",
        "keras_vit, keras",
        "keras_vit.core.image_spec",
        "keras_vit.models.surgery",
    ],
)
def test_import_registers_all_that_a_saved_model_may_name(modules):
    """`keras.models.load_model` finds layers, models, schedules, optimizers and losses."""
    code = f"""
import importlib
import {modules}
import keras
registered = set(keras.saving.get_custom_objects())
for module in ("layers", "models", "training.trainer", "serving.export", "data.images.augment"):
    importlib.import_module(f"keras_vit.{{module}}")
print({{"keras_vit>AdamW", "keras_vit>ImageModel"}} <= registered)
print(set(keras.saving.get_custom_objects()) - registered)
"""
    assert run_python(code).split() == ["True", "set()"]


def test_import_of_the_package_does_not_import_keras():
    code = """
import sys
import keras_vit
assert {"ViT_B16", "layers"} <= set(dir(keras_vit))
print(sorted({"keras", "tensorflow", "numpy"} & set(sys.modules)))
"""
    assert run_python(code).strip() == "[]"


def test_help_mistakes_and_tables_do_not_import_keras():
    """In one process, which names the first that does."""
    commands = [
        ["--help"],
        *([command, "--help"] for command in COMMANDS.split()),
        ["train", "finetune", "--help"],
        ["study", "paper", "--help"],
        ["mistyped"],
        ["models", "--flops"],
        ["study", "paper"],
        ["study", "paper", "--table", "5"],
        ["checkpoints"],
        ["data"],
    ]
    code = f"""
import contextlib, sys
from keras_vit.cli import main
for arguments in {commands!r}:
    with contextlib.suppress(SystemExit):
        main(arguments)
    if imported := {{"keras", "tensorflow", "jax", "torch"}} & set(sys.modules):
        print(f"{{arguments}}: {{imported}}")
        break
else:
    print("none")
"""
    assert run_python(code).splitlines()[-1] == "none"


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "keras_vit", "--help"]
    assert "quickstart" in subprocess.run(command, capture_output=True, text=True).stdout
