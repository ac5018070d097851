"""Make the README's links absolute for PyPI; setup.cfg has everything else."""

import pathlib
import re

import setuptools

REPOSITORY = "https://github.com/keras-vit/keras_vit"
README = pathlib.Path(__file__).parent / "README.md"


def with_whole_addresses(readme):
    """Return the README with addresses in place of the paths of files and pictures."""
    relative = r"\]\((?!https?:|#)"
    readme = re.sub(rf"!(\[[^\]]*){relative}", rf"!\1]({REPOSITORY}/raw/main/", readme)
    return re.sub(relative, f"]({REPOSITORY}/blob/main/", readme)


if __name__ == "__main__":
    setuptools.setup(long_description=with_whole_addresses(README.read_text(encoding="utf-8")))
