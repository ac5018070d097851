"""A server, and the exports that it serves."""

import pytest

from keras_vit.models import vision_transformer
from keras_vit.serving.export import export
from tests.fixtures.contract import randomise
from tests.fixtures.serving.asking import NAMES
from tests.fixtures.tiny import TINY


@pytest.fixture(scope="session")
def models():
    """A model for each version that the server has."""
    made = {version: vision_transformer(**{**TINY, "depth": 1}) for version in (1, 3)}
    for version, model in made.items():
        randomise(model)
        model.get_layer("head").bias.assign([0, version, 2])
    return made


@pytest.fixture(scope="session")
def directory(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    shared = {"class_names": NAMES, "warmup_batch_sizes": ()}
    few = {"signatures": ("bytes",), **shared}
    export(models[1], root / "pets", version=1, **few)
    export(models[3], root / "pets", version=3, signatures=("bytes", "features"), **shared)
    export(models[3], root / "flagging", on_bad_image="flag", **few)
    return root


@pytest.fixture(scope="session")
def server(directory):
    """A server with TF Serving's two APIs, in this process."""
    pytest.importorskip("tensorflow_serving")
    from tests.fixtures.serving.peer import Peer

    with Peer({path.name: path for path in directory.iterdir()}).serve() as peer:
        yield peer
