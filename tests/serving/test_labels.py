"""Class names of exports."""

import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.serving.formats import LABELS
from keras_vit.serving.runner import load_runner
from tests.core.test_class_names import WRONG
from tests.fixtures.models import NAMES, classifier, files
from tests.fixtures.tiny import TINY


@pytest.mark.slow
@pytest.mark.parametrize("names", [["cat", "dog", "eel"], ["crane", "cat", "crane"]])
def test_labels_may_have_a_byte_order_mark_and_equal_names(names, tmp_path):
    version = keras_vit.export(classifier(), tmp_path, format="litert")
    (version / LABELS).write_text("\n".join(names), encoding="utf-8-sig")
    assert load_runner(version).class_names == names


@pytest.mark.slow
def test_labels_of_another_number_of_classes_are_refused(tmp_path):
    version = keras_vit.export(classifier(), tmp_path, format="litert")
    (version / LABELS).write_text("cat\ndog\n")
    with pytest.raises(ValueError, match=r"logits \(3,\) and 2 names"):
        keras_vit.serving.Predictor(version)({"bytes": files(1)})


@pytest.mark.parametrize(("names", "message"), WRONG[1:])
def test_an_export_does_not_begin_with_wrong_names(names, message, tmp_path):
    model = vision_transformer(**{**TINY, "num_classes": 2})
    with pytest.raises(ValueError, match=message if len(names) == 2 else "names 2 classes"):
        keras_vit.export(model, tmp_path / "out", class_names=names)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [NAMES, None])
def test_missing_class_names_are_logged(names, tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    model = classifier()
    model.class_names = names
    model.save(tmp_path / "model.keras")
    runner = keras_vit.serving.Predictor(tmp_path / "model.keras").model
    assert runner.class_names == (names and list(names))
    assert ("has no class names, so predictions are numbers" in caplog.text) == (names is None)
