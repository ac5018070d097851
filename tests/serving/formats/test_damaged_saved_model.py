"""SavedModels that are damaged, or whose file of labels is not theirs."""

import pytest

from keras_vit.serving.export import export
from tests.fixtures.commands import error_of, run
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
    assert "must be a complete SavedModel" in error_of(capsys, "predict", version, photo)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "found"), [("\n".join(NAMES[::-1]), repr(NAMES[-1])), (None, "'0'")]
)
def test_labels_that_are_not_those_of_the_graph(labels, found, served, capsys):
    version, photo = served
    assert NAMES[0] in run(capsys, "predict", version, photo)
    path = version / "assets" / "labels.txt"
    path.unlink()
    if labels is not None:
        path.write_text(labels)
    error = error_of(capsys, "predict", version, photo)
    assert (
        f"must have the names that the export answers. Received: '{version}' with {found}" in error
    )
