"""Import hooks: a call after the import of Keras, and modules that have moved."""

import importlib
import importlib.abc
import importlib.util
import sys

# Old names of documented modules, and their new names.
MOVED = {
    "keras_vit.evaluation.reported": "keras_vit.experiments.reported",
    "keras_vit.evaluation.vtab": "keras_vit.experiments.vtab_tasks",
    "keras_vit.evaluation.vtab_tables": "keras_vit.experiments.vtab_tables",
    "keras_vit.experiments.study_runs": "keras_vit.experiments.studies.runs",
    "keras_vit.experiments.study_table": "keras_vit.experiments.studies.table",
    "keras_vit.layers.rotary": "keras_vit.layers.positions.rotary",
    "keras_vit.models.folding": "keras_vit.models.kernels.folding",
}


def call_after_import(name, function):
    """Call a function after a module is imported, or now if it is imported already.

    Args:
        name: name of a top-level module.
        function: function without arguments.
    """
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _CallAfterImport(name, function))


def find_moved_modules():
    """Make modules that have moved importable by their old names."""
    sys.meta_path.append(_FindMoved())


class _CallAfterImport(importlib.abc.MetaPathFinder):
    def __init__(self, name, function):
        self.name = name
        self.function = function
        # Number of modules that are being executed.
        self.depth = 0

    def find_spec(self, name, path=None, target=None):
        if name != self.name and not name.startswith("keras_vit."):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None:
            self._wrap(spec.loader)
        return spec

    def _wrap(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            self.depth += 1
            try:
                execute(module)
            finally:
                self.depth -= 1
            # The function may need the module of this package that has imported the other.
            if self.depth == 0 and self.name in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                self.function()

        loader.exec_module = exec_module


class _FindMoved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in MOVED else None

    def exec_module(self, module):
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])
