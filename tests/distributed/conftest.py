"""Pictures, some of them broken, and a model."""

import pytest

from keras_vit.distributed.batch import Job
from keras_vit.serving import Predictor
from tests.fixtures.images import write_folder
from tests.fixtures.models import NAMES, classifier
from tests.fixtures.predicted.parts import OUTPUTS, rows_of


@pytest.fixture(scope="package")
def photos(tmp_path_factory):
    root = write_folder(tmp_path_factory.mktemp("images") / "photos", count=20)
    (root / "cat" / "5.jpg").write_bytes(b"<html>")
    (root / "dog" / "7.jpg").write_bytes(b"")
    return root


@pytest.fixture(scope="package")
def path(tmp_path_factory):
    model = classifier()
    model.class_names = NAMES
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


@pytest.fixture(scope="package")
def expected(path, photos, tmp_path_factory):
    """The rows of one process in one part."""
    output = tmp_path_factory.mktemp("expected")
    job = Job(Predictor(path, OUTPUTS), (str(photos),), output, part_size=100)
    job.begin()
    assert job.write(0) == (40, 2)
    return rows_of(output)
