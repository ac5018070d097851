"""Groups of copies within one set."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.cli import main
from keras_vit.data import find_groups, load
from keras_vit.data.deduplication.copies import draw_groups
from keras_vit.data.left_out import read_ids
from keras_vit.data.sources.source import from_arrays
from tests.fixtures.photos import broken_images, photographs, to_bytes


def crops(count):
    """Return parts of a photograph that do not overlap."""
    pixels = photographs()["china"]
    return [Image.fromarray(pixels[100:300, 100 * i : 100 * (i + 1)]) for i in range(count)]


def as_source(encoded, labels=None):
    labels = np.zeros(len(encoded), int) if labels is None else np.array(labels)
    return from_arrays(np.array(encoded, object), labels, ["a", "b"], find_id="image#{}".format)


def mirrored(image):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def test_copies_are_grouped_in_the_order_of_the_set():
    one, two, three = crops(3)
    black = to_bytes(Image.new("RGB", (20, 20)), "PNG")
    encoded = [
        *(to_bytes(one, "PNG"), to_bytes(two, "PNG"), to_bytes(mirrored(one), "JPEG")),
        *(to_bytes(three, "PNG"), to_bytes(two, "JPEG", quality=60), black, black),
        *(
            broken_images()["truncated.jpg"],
            to_bytes(one, "PNG"),
            to_bytes(one.resize((70, 90)), "PNG"),
        ),
    ]
    labels = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    found = find_groups(as_source(encoded, labels))
    assert found.groups == (
        ("image#0", "image#2", "image#8", "image#9"),
        ("image#1", "image#4"),
    )
    assert found.mixed == (("image#1", "image#4"),)
    assert found.ids == ["image#2", "image#8", "image#9", "image#4"]
    assert found.blank == ("image#5", "image#6")
    assert found.skipped == ("image#7",)
    alone = find_groups(as_source(encoded[:2]))
    assert (alone.groups, alone.ids) == ((), [])
    blank = find_groups(as_source([black, black]))
    assert (blank.groups, blank.blank) == ((), ("image#0", "image#1"))
    with pytest.raises(ValueError, match="`max_distance` must be"):
        find_groups(as_source(encoded[:2]), max_distance=36)


@pytest.mark.slow
def test_a_chain_of_copies_is_one_group():
    """The ends of the chain are too different; both are copies of what is between them."""
    image = crops(1)[0]
    wide = [image.crop((left, 0, left + 84, 200)) for left in range(0, 17, 2)]
    encoded = [to_bytes(part, "PNG") for part in wide]
    assert not find_groups(as_source([encoded[0], encoded[-1]])).groups
    assert len(find_groups(as_source(encoded)).groups[0]) == 9


@pytest.mark.slow
def test_a_thousand_equal_images_are_compared_once():
    one, two = (to_bytes(image, "PNG") for image in crops(2))
    found = find_groups(as_source([one] * 100 + [two] + [one] * 100))
    assert [len(group) for group in found.groups] == [200]
    assert found.ids[:2] == ["image#1", "image#2"]


@pytest.mark.slow
def test_images_with_several_labels():
    one = to_bytes(crops(1)[0], "PNG")
    labels = np.array([[1, 0], [1, 0], [1, 1]], "float32")
    assert not find_groups(as_source([one, one], labels[:2])).mixed
    assert len(find_groups(as_source([one, one, one], labels)).mixed) == 1


def test_command_writes_the_copies(tmp_path, capsys):
    one, two, three = crops(3)
    for name, image, kind in (
        *(("cat/1.png", one, "PNG"), ("cat/2.jpg", one, "JPEG"), ("cat/3.png", two, "PNG")),
        *(("dog/1.png", three, "PNG"), ("dog/2.png", mirrored(two), "PNG")),
    ):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_bytes(image, kind))
    data = f"folder:{tmp_path / 'photos'}"
    output, picture = tmp_path / "exclude.txt", tmp_path / "copies.png"
    main(["deduplicate", data, "--output", str(output), "--picture", str(picture)])
    out = capsys.readouterr().out
    assert f"{data}: 5 images (all images)\n" in out
    assert "groups of copies: 2, images in the largest: 2\n" in out
    assert "groups that have images with different labels: 1\n  cat/3.png, dog/2.png\n" in out
    assert "2 of 5 images are copies of others, written to" in out
    assert read_ids(output) == ["# 2 images that are copies of others", "cat/2.jpg", "dog/2.png"]
    with Image.open(picture) as sheet:
        assert sheet.size == (2 * 160, 2 * 210)
        assert np.asarray(sheet).std() > 20
    left = load(data, "train+validation+test", 8, 4, exclude=output)
    assert left.info.num_examples == 3


def test_at_most_eight_images_are_drawn_in_a_row(tmp_path):
    source = as_source([to_bytes(image, "PNG") for image in crops(5)] * 2)
    ids = tuple(f"image#{place}" for place in range(10))
    draw_groups([ids, ids[:2]], source, tmp_path / "groups.png")
    draw_groups([], source, tmp_path / "none.png")
    with Image.open(tmp_path / "groups.png") as sheet, Image.open(tmp_path / "none.png") as none:
        assert sheet.size == (8 * 160, 2 * 210)
        assert none.size == (160, 210)
