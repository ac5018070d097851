"""Write the type stubs of the packages whose public names are imported at first use.

Type checkers do not follow `make_lazy`. Example: make docs
"""

import importlib
import pathlib

import keras_vit

ROOT = pathlib.Path(keras_vit.__file__).parent
HEADER = '"""The public names, for type checkers; written by `make docs`."""\n\n'


def stubs():
    """Return the texts of the stubs by their paths."""
    found = {}
    for path in sorted(ROOT.rglob("__init__.py")):
        package = importlib.import_module(
            ".".join(["keras_vit", *path.parent.relative_to(ROOT).parts])
        )
        homes = getattr(package, "__lazy__", {})
        if set(homes) == set(getattr(package, "__all__", ())) != set():
            lines = [f"from {home} import {name} as {name}\n" for name, home in homes.items()]
            version = "\n__version__: str\n" if package is keras_vit else ""
            found[path.with_suffix(".pyi")] = HEADER + "".join(sorted(lines)) + version
    return found


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
