"""Class names of exports."""

import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving.labels import labels_of
from tests.core.test_class_names import WRONG
from tests.fixtures.tiny import TINY


@pytest.mark.parametrize("names", [["cat", "dog"], ["crane", "cat", "crane"]])
def test_labels_of_an_export_may_have_a_byte_order_mark_and_equal_names(names, tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "labels.txt").write_text("\n".join(names), encoding="utf-8-sig")
    assert labels_of(tmp_path) == names


@pytest.mark.parametrize("labels", [b"", b"cat\n\n", b"cat\n\xff\n"])
def test_edited_labels_of_an_export_are_refused(labels, tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "labels.txt").write_bytes(labels)
    with pytest.raises(ValueError, match="must hold one class name per line, in UTF-8. Received"):
        labels_of(tmp_path)


@pytest.mark.parametrize(("names", "message"), WRONG[1:])
def test_an_export_does_not_begin_with_wrong_names(names, message, tmp_path):
    model = vision_transformer(**{**TINY, "num_classes": 2})
    with pytest.raises(ValueError, match=message if len(names) == 2 else "names 2 classes"):
        keras_vit.export(model, tmp_path / "out", class_names=names)
    assert not (tmp_path / "out").exists()
