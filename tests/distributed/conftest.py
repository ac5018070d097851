"""Pictures, some of them broken, and a model."""

import pytest

from tests.fixtures.images import write_folder
from tests.fixtures.models import NAMES, classifier


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
