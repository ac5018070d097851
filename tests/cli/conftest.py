"""Photographs, a model and a run of the commands."""

import keras
import pytest

from keras_vit.cli import main
from keras_vit.models import vision_transformer
from tests.fixtures.commands import train_arguments
from tests.fixtures.images import write_folder
from tests.fixtures.tiny import TINY


@pytest.fixture(scope="package")
def photos(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("photos"), ("cat", "dog"), count=10)


@pytest.fixture(scope="package")
def start(tmp_path_factory):
    """A tiny model to fine-tune."""
    path = tmp_path_factory.mktemp("models") / "start.keras"
    keras.utils.set_random_seed(0)
    vision_transformer(**TINY).save(path)
    return path


@pytest.fixture(scope="package")
def finished_run(photos, start, tmp_path_factory):
    """A run that fine-tuned the tiny model on the photos."""
    workdir = tmp_path_factory.mktemp("runs") / "photos"
    main(train_arguments(start, photos, workdir))
    return workdir
