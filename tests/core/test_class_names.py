"""Names by which classes cannot be told apart are refused before anything is made."""

import pytest

import keras_vit
from keras_vit.core.class_names import check_class_names
from keras_vit.data import find_source, write_records
from keras_vit.data.labels import imagenet_class_names, read_labels
from keras_vit.models import vision_transformer
from keras_vit.serving.labels import labels_of
from tests.fixtures.images import write_folder
from tests.fixtures.tiny import TINY

ALIKE = ["cafe\u0301", "café ", "ca\u200bfé", "\ufeffcafé", "\uff43afé"]
INVISIBLE = "\x07\xad\u034f\u115f\u1160\u17b4\u180b\u180e\u2800\u3164\ufe0f\uffa0\U000e0100"
WRONG = [
    (["cat"], "at least two classes"),
    (["cat", "cat"], "be there once. Received: 'cat' and 'cat'"),
    (["cat", "CAT"], "differ by more than case"),
    (["straße", "STRASSE"], "differ by more than case"),
    (["cat", ""], "not empty"),
    (["cat", "\t"], "not empty"),
    (["cat", "d\nog"], "of one line"),
    (["cat", "dog\u2028"], "of one line"),
    (["cat", "dog\udcff"], "UTF-8"),
    (["cat", 1], "must be strings"),
    (["cat", "\u200b"], "not empty"),
    ("cat", "must be a list"),
    ({"dog": 1, "cat": 0}, "must be a list or tuple .* Received: dict"),
    ({"cat", "dog"}, "must be a list or tuple .* Received: set"),
    *((["café", name], "not look alike") for name in ALIKE),
    *((["cat", f"ca{letter}t"], "not look alike") for letter in INVISIBLE),
    (["cat", INVISIBLE], "not empty"),
    (["ice cream", "ice  cream"], "not look alike"),
    (["ice cream", "ice\u3000\u200b cream"], "not look alike"),
    # Cyrillic, Greek, and two mixtures of Cyrillic and Latin letters.
    (["cat", "\u0441\u0430t"], "not look alike"),
    (["OX", "\u039f\u03a7"], "not look alike"),
    (["c\u0430t", "\u0441at"], "not look alike"),
]


@pytest.mark.parametrize(("names", "message"), WRONG)
def test_wrong_names(names, message):
    with pytest.raises(ValueError, match=message):
        check_class_names(names)


@pytest.mark.parametrize(
    "names",
    [
        ["кот", "вор", "рот", "нос", "сом", "ёж", "еж", "сор", "ВОЛ", "Ворона"],  # noqa: RUF001
        ["γάτα", "σκύλος", "άλογο", "ίππος"],
        ["고양이", "개", "猫", "犬", "❤", "cat", "cat dog", "catdog"],
    ],
)
def test_names_of_other_scripts(names):
    assert check_class_names(names) == tuple(names)


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


@pytest.mark.parametrize("labels", ["cat\ncat\n", "cat\n\n", "cat\nCat\n", "cat\n"])
def test_records_with_wrong_labels_are_refused(labels, tmp_path):
    photos = write_folder(tmp_path / "photos", count=10)
    write_records(find_source(f"folder:{photos}", "train"), tmp_path / "records", "train", 1)
    (tmp_path / "records" / "labels.txt").write_text(labels)
    with pytest.raises(ValueError, match="The class names of 'tfrecord:"):
        find_source(f"tfrecord:{tmp_path}/records/*", "train")


def test_records_of_several_folders_have_the_same_classes(tmp_path):
    for name, classes in (("one", ("cat", "dog")), ("two", ("ant", "dog"))):
        photos = write_folder(tmp_path / f"photos of {name}", classes, count=10)
        source = find_source(f"folder:{photos}", "train")
        write_records(source, tmp_path / "records" / name, "train", 1)
    with pytest.raises(ValueError, match="must have the same class names.*one.*two"):
        find_source(f"tfrecord:{tmp_path}/records/*/*", "train")


@pytest.mark.parametrize("num_classes", [1000, 21843])
def test_each_imagenet_class_has_a_name_of_its_own(num_classes):
    names = imagenet_class_names(num_classes)
    assert check_class_names(names, num_classes=num_classes) == tuple(names)
    for name, (synset, original) in zip(names, read_labels(num_classes), strict=True):
        assert name in (original, f"{original}_{synset}")
