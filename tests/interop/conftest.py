"""The projects that checkpoints are compared with."""

import importlib.util

import pytest

PEERS = ("torch", "transformers", "timm", "keras_hub", "yaml", "peft", "flax", "open_clip")

# The default run has no peers, and collecting imports them. `nox -s interop` installs them all:
# where one is missing it collects nothing, which pytest counts as a failure.
if any(importlib.util.find_spec(peer) is None for peer in PEERS):
    collect_ignore_glob = ["*.py"]
else:
    from tests.fixtures.peers.torchvision_alone import find_torchvision

    # Before transformers asks for it.
    find_torchvision()


@pytest.fixture(scope="session")
def timm():
    import timm

    return timm
