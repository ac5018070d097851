"""Tables of a confusion matrix."""

import numpy as np
import pytest

from keras_vit.evaluation.confusion import write_confusion


def test_a_confusion_matrix_is_written_whole(tmp_path):
    path = tmp_path / "confusion.csv"
    write_confusion(np.eye(2, dtype=int), ["cat", "dog"], path)
    before = path.read_text()
    with pytest.raises(ValueError, match="zip"):
        write_confusion(np.eye(3, dtype=int), ["cat", "dog"], path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
