"""The projects that checkpoints are compared with."""

import importlib.util

import pytest

PEERS = ("torch", "transformers", "timm", "keras_hub", "yaml")

# The default run has no peers, and collecting imports them. `make test-interop` installs them all:
# where one is missing it collects nothing, which pytest counts as a failure.
if any(importlib.util.find_spec(peer) is None for peer in PEERS):
    collect_ignore_glob = ["*.py"]


@pytest.fixture(scope="session")
def timm():
    """timm, its missing torchvision stubbed."""
    from tests.fixtures.timm_alone import import_timm

    return import_timm()
