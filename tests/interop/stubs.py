"""timm without torchvision, which has no build for CPUs alone here."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


def import_timm():
    """timm; what it imports from torchvision is stubbed where this is not installed."""
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(StubFinder())
    return importlib.import_module("timm")


class AnyAttribute(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Anything(metaclass=AnyAttribute):
    """Stands for whatever timm imports from torchvision.

    timm's data pipelines use it; its models do not.
    """

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StubModule(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyAttribute(name, (Anything,), {}) if name[:1].isupper() else Anything()


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StubModule(spec.name)

    def exec_module(self, module):
        pass
