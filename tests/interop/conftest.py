"""Tests against the real transformers, timm and keras-hub: `make test-interop`."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

import pytest

PEERS = ("torch", "transformers", "timm", "keras_hub", "yaml")

# The default run has no peers, and collecting imports them. `make test-interop` installs them all:
# where one is missing it collects nothing, which pytest counts as a failure.
if any(importlib.util.find_spec(peer) is None for peer in PEERS):
    collect_ignore_glob = ["*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/interop/" in item.nodeid:
            item.add_marker(pytest.mark.interop)


class AnyAttribute(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Anything(metaclass=AnyAttribute):
    """Stands for whatever timm imports from torchvision, which has no build for CPUs alone here.

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


@pytest.fixture(scope="session")
def timm():
    """timm, its missing torchvision stubbed."""
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(StubFinder())
    import timm

    return timm
