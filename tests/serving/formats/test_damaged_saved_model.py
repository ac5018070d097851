"""SavedModels that are damaged."""

import pytest

from keras_vit.serving.export import export
from tests.fixtures.commands import error_of
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import NAMES, small_classifier

pytestmark = pytest.mark.backends("tensorflow", reason="files are the same on every backend")


@pytest.fixture
def served(tmp_path):
    """A version of an export, and a photograph."""
    version = export(small_classifier("token"), tmp_path / "pets", class_names=NAMES)
    (tmp_path / "photo.png").write_bytes(encode(random_image(20, 30), "PNG"))
    return version, tmp_path / "photo.png"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("variables/variables.data-00000-of-00001", 1000),
        ("variables/variables.data-00000-of-00001", None),
        ("variables/variables.index", 50),
        ("saved_model.pb", 100),
    ],
)
def test_damaged_files(name, length, served, capsys):
    version, photo = served
    content = (version / name).read_bytes()
    (version / name).unlink()
    if length is not None:
        (version / name).write_bytes(content[:length])
    assert "must be a complete export" in error_of(capsys, "predict", version, photo)
