"""A finished run, and a copy of it to change."""

import shutil

import keras
import pytest

from keras_vit.cli import main
from keras_vit.models import vision_transformer
from tests.fixtures.commands import train_arguments
from tests.fixtures.images import write_folder
from tests.fixtures.tiny import TINY


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """A folder of photos, and a run that was trained on it."""
    root = tmp_path_factory.mktemp("finished")
    keras.utils.set_random_seed(0)
    vision_transformer(**TINY).save(root / "start.keras")
    write_folder(root / "photos", count=10)
    main(train_arguments(root / "start.keras", root / "photos", root / "run"))
    return root


@pytest.fixture
def root(finished, tmp_path):
    """A copy of both, in another place."""
    copy = shutil.copytree(finished, tmp_path / "copy")
    run_file = copy / "run" / "run.json"
    run_file.write_text(run_file.read_text().replace(str(finished), str(copy)))
    return copy
