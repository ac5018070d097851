"""Packages whose public names are imported at first use."""

import importlib
import sys
import types

NEEDS_TENSORFLOW = "needs TensorFlow with every backend of Keras: pip install tensorflow"


def _import(module, name):
    """Import a module, or raise an error that says why the public name needs TensorFlow."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Keras is imported, so its backend is another one.
        if error.name == "tensorflow" and "keras" in sys.modules:
            raise ModuleNotFoundError(f"{name} {NEEDS_TENSORFLOW}", name=error.name) from error
        raise


def make_lazy(package, homes, public_modules=(), elsewhere=None):
    """Give a package public names that are imported from their modules at first use.

    A public name takes precedence over a module of the same name: `keras_vit.models.resnet` stays
    the function after the module `keras_vit/models/resnet.py` is imported.

    Args:
        package: name of the package, its `__name__`.
        homes: dictionary from the full names of modules to the public names that they define.
        public_modules: full names of modules that are public under the last part of their names.
        elsewhere: dictionary from names in other packages to what replaces them here, for errors.

    Returns:
        The public names, for `__all__`.

    Example:
    >>> from keras_vit.core.lazy import make_lazy
    >>> make_lazy("keras_vit.core", {"keras_vit.version": ["__version__"]})
    ['__version__']
    """
    modules = {name: module for module, names in homes.items() for name in names}
    submodules = {module.rpartition(".")[2]: module for module in public_modules}

    class LazyPackage(types.ModuleType):
        def __getattr__(self, name):
            if name in modules:
                value = getattr(_import(modules[name], f"{package}.{name}"), name)
            elif name in submodules:
                value = importlib.import_module(submodules[name])
            else:
                text = f"module {package!r} has no attribute {name!r}"
                if elsewhere and name in elsewhere:
                    text += f": use {elsewhere[name]}"
                # With these, Python suggests the nearest name.
                raise AttributeError(text, name=name, obj=self)
            self.__dict__[name] = value
            return value

        def __setattr__(self, name, value):
            # Python binds a module to its package after each import.
            if not (name in modules and isinstance(value, types.ModuleType)):
                super().__setattr__(name, value)

        def __dir__(self):
            own = {name for name in self.__dict__ if name.startswith("__")}
            return sorted({*own, *modules, *submodules})

    sys.modules[package].__class__ = LazyPackage
    # Where each name is imported from, for the type stubs.
    packages = {name: module.rpartition(".")[0] for name, module in submodules.items()}
    sys.modules[package].__lazy__ = {**modules, **packages}
    return sorted([*modules, *submodules])
