"""ObjectNet: its images, without their red border, and its labels of ImageNet."""

import json

import numpy as np
import pytest

from keras_vit.core.text import imagenet_class_names
from keras_vit.data import find_source, load
from keras_vit.data.inputs import find_images
from keras_vit.data.pipeline import find_all_splits
from keras_vit.evaluation import evaluate
from keras_vit.models import vision_transformer
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import TINY

WORDS = imagenet_class_names(1000)
# The names that ObjectNet's files have for these classes.
NAMES = {"analog_clock": "analog clock", "digital_clock": "digital clock", "banana": "banana"}
ANALOG_CLOCK, DIGITAL_CLOCK, BANANA = map(WORDS.index, NAMES)
FOLDERS = {"alarm_clock": 3, "banana": 2, "chess_piece": 2}
RED, BLUE = (255, 0, 0), (0, 0, 255)


def inside(seed):
    """A picture that is less red and less blue than the border."""
    return random_image(16, 24, seed) // 2


def with_border(picture):
    """Surround a picture by a blue line, which belongs to the photograph, and a red one."""
    for color in (BLUE, RED):
        framed = np.empty((picture.shape[0] + 2, picture.shape[1] + 2, 3), "uint8")
        framed[:], framed[1:-1, 1:-1] = color, picture
        picture = framed
    return picture


@pytest.fixture
def root(tmp_path):
    """A folder like `objectnet-1.0`, with three classes."""
    root, mappings = tmp_path / "objectnet-1.0", tmp_path / "objectnet-1.0" / "mappings"
    for name, count in FOLDERS.items():
        (root / "images" / name).mkdir(parents=True)
        for index in range(count):
            encoded = encode(with_border(inside(len(name) + index)))
            (root / "images" / name / f"{index}.png").write_bytes(encoded)
    mappings.mkdir()
    # In another order than the outputs, as in the published files; "crane" is there twice.
    lines = [(37 * output + 11) % 1000 for output in range(1000)]
    text = [""] * 1000
    for output, name in enumerate(WORDS):
        text[lines[output]] = "crane" if name.startswith("crane_") else NAMES.get(name, name)
    (mappings / "imagenet_to_label_2012_v2").write_text("".join(f"{name} \n" for name in text))
    write(mappings / "pytorch_to_imagenet_2012_id.json", {str(i): n for i, n in enumerate(lines)})
    labels = {"alarm_clock": "Alarm clock", "banana": "Banana", "chess_piece": "Chess piece"}
    write(mappings / "folder_to_objectnet_label.json", labels)
    names = {"Alarm clock": "digital clock; analog clock", "Banana": "banana"}
    write(mappings / "objectnet_to_imagenet_1k.json", names)
    return root


def write(file, found):
    file.write_text(json.dumps(found))


def test_labels(root):
    source = find_source(f"objectnet:{root}", "test")
    found = {
        source.find_id(int(number)): np.flatnonzero(label).tolist()
        for number, _, label in source.examples.as_numpy_iterator()
    }
    clock = sorted((ANALOG_CLOCK, DIGITAL_CLOCK))
    assert found == {
        **{f"images/alarm_clock/{index}.png": clock for index in range(3)},
        **{f"images/banana/{index}.png": [BANANA] for index in range(2)},
    }
    assert source.class_names == tuple(WORDS)
    assert source.left_out == {"of classes that ImageNet does not have": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"central_crop_from": 12},
        {"training": True, "min_crop_area": 0.05, "flip": True, "seed": 3},
        {"training": True, "random_crop_from": 12, "upright": True},
    ],
)
def test_the_border_is_cut_off_before_anything_else(root, tmp_path, options):
    """The batches are those of files without a border."""
    paths = []
    for name, count in list(FOLDERS.items())[:2]:
        for index in range(count):
            paths.append(f"{name}_{index}.png")
            (tmp_path / paths[-1]).write_bytes(encode(inside(len(name) + index)))
    (tmp_path / "test.csv").write_text("".join(f"{path},{path[0]}\n" for path in paths))
    (tmp_path / "train.csv").write_text((tmp_path / "test.csv").read_text())
    found, expected = (
        np.concatenate([images for images, _ in load(name, "test", 8, 2, **options)])
        for name in (f"objectnet:{root}", f"csv:{tmp_path}")
    )
    np.testing.assert_array_equal(found, expected)
    # Neither red nor blue: resizing does not exceed the greatest value of a pixel.
    assert found.max() < 0.01


def test_images_to_predict_and_to_compare_have_no_border(root):
    rows = find_images([f"objectnet:{root}"])
    columns = rows.columns(0, 5)
    np.testing.assert_array_equal(columns["image"][4], inside(len("banana") + 1))
    assert columns["label"][0] == ["analog_clock", "digital_clock"]
    source = find_all_splits(f"objectnet:{root}", None)
    assert source.num_examples == 5
    picture = with_border(random_image())
    np.testing.assert_array_equal(source.pixels(picture), picture[2:-2, 2:-2])


def test_an_image_without_an_inside_is_skipped(root):
    (root / "images" / "banana" / "small.png").write_bytes(encode(random_image(9, 4)))
    dataset = load(f"objectnet:{root}", "test", 8, 8)
    assert sum(len(images) for images, _ in dataset) == 5
    assert list(dataset.info.skipped.reasons) == ["images/banana/small.png"]


def test_other_splits_are_refused(root):
    """The license forbids to train on them."""
    with pytest.raises(ValueError, match="must be test"):
        load(f"objectnet:{root}", "train+test", 8, 8)


def test_a_name_of_two_outputs_is_refused(root):
    """To count both would take wrong predictions for right ones."""
    write(root / "mappings" / "objectnet_to_imagenet_1k.json", {"Banana": "crane"})
    with pytest.raises(KeyError, match="crane"):
        find_source(f"objectnet:{root}", "test")


def test_folders_that_are_missing_or_unknown_are_told(root, caplog):
    (root / "images" / "banana").rename(root / "images" / "spoon")
    assert find_source(f"objectnet:{root}", "test").num_examples == 3
    assert "1 classes that are evaluated have no folder (banana)" in caplog.text


@pytest.mark.slow
def test_evaluation_of_all_1000_outputs(root):
    """The greatest logit is one of the alarm clock's two classes, for every image."""
    model = vision_transformer(**{**TINY, "num_classes": 1000})
    bias = np.zeros(1000)
    # Five outputs are above the banana.
    bias[[DIGITAL_CLOCK, 0, 1, 2, 3, BANANA]] = 9, 8, 7, 6, 5, 4
    model.get_layer("head").set_weights([np.zeros(model.get_layer("head").kernel.shape), bias])
    found = evaluate(model, load(f"objectnet:{root}", "test", 16, 2))
    assert found == pytest.approx({"images": 5, "accuracy": 0.6, "top_5_accuracy": 0.6})
