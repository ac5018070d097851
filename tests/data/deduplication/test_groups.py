"""Groups of copies within one set."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.cli import main
from keras_vit.data import find_groups, load
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
    encoded = [to_bytes(one, "PNG"), to_bytes(two, "PNG"), to_bytes(mirrored(one), "JPEG")]
    encoded += [to_bytes(three, "PNG"), to_bytes(two, "JPEG", quality=60), black, black]
    encoded += [broken_images()["truncated.jpg"], to_bytes(one.resize((70, 90)), "PNG")]
    labels = [0, 0, 0, 0, 1, 0, 0, 0, 0]
    found = find_groups(as_source(encoded, labels))
    assert found.groups == (("image#0", "image#2", "image#8"), ("image#1", "image#4"))
    assert found.mixed == (("image#1", "image#4"),)
    assert found.ids == ["image#2", "image#8", "image#4"]
    assert found.blank == ("image#5", "image#6")
    assert found.skipped == ("image#7",)
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
def test_images_with_several_labels():
    one = to_bytes(crops(1)[0], "PNG")
    labels = np.array([[1, 0], [1, 0], [1, 1]], "float32")
    assert not find_groups(as_source([one, one], labels[:2])).mixed
    assert len(find_groups(as_source([one, one, one], labels)).mixed) == 1


def test_command_writes_the_copies(tmp_path, capsys):
    one, two, three = crops(3)
    files = {"cat/1.png": one, "cat/2.png": one, "cat/3.png": two}
    for name, image in {**files, "dog/1.png": three, "dog/2.png": mirrored(two)}.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_bytes(image, "PNG"))
    data = f"folder:{tmp_path / 'photos'}"
    output, picture = tmp_path / "exclude.txt", tmp_path / "copies.png"
    command = ["deduplicate", data, "--output", str(output)]
    main([*command, "--picture", str(picture)])
    assert "2 of 5 images are copies of others" in capsys.readouterr().out
    assert read_ids(output)[1:] == ["cat/2.png", "dog/2.png"]
    with Image.open(picture) as sheet:
        assert np.asarray(sheet).std() > 20
    with pytest.raises(SystemExit):
        main(command)
    assert "must be a new .txt file" in capsys.readouterr().err
    left = load(data, "train+validation+test", 8, 4, exclude=output)
    assert left.info.num_examples == 3
