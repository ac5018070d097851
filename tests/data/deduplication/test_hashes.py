"""Hashes in parts: the result is the same, and nothing is computed twice or read from others."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.cli import main
from keras_vit.data import HashParts, find_duplicates, find_source
from keras_vit.data.deduplication import hashes as parts_module
from keras_vit.data.left_out import read_ids
from tests.fixtures.images import encode
from tests.fixtures.photos import broken_images, write_photos


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """12 photographs for training, one of one color and one broken; 2 of them in a test set."""
    root = tmp_path_factory.mktemp("parts")
    train = write_photos(root / "train", 4, size=(60, 44))
    (train / "china" / "black.png").write_bytes(encode(np.zeros((20, 20, 3), "uint8")))
    (train / "flower" / "broken.jpg").write_bytes(broken_images()["truncated.jpg"])
    for name in ("china", "flower"):
        (root / "test" / name).mkdir(parents=True)
        copy = root / "test" / name / "copy.png"
        copy.write_bytes(sorted((train / name).glob("00*"))[1].read_bytes())
    return root


def every(root, name):
    return find_source(f"folder:{root / name}", "train+validation+test")


@pytest.mark.slow
def test_shards_together_give_what_one_piece_gives(root, tmp_path):
    train, test = every(root, "train"), every(root, "test")
    expected = find_duplicates(train, test)
    assert len(expected.pairs) >= 2
    assert expected.blank == ("china/black.png",)
    assert expected.skipped == ("flower/broken.jpg",)
    for shard in range(3):
        parts = HashParts(train, tmp_path / "hashes", "photos", part_size=3)
        assert parts.missing((shard, 3)) == list(range(shard, parts.count, 3))
        for part in parts.missing((shard, 3)):
            parts.write(part)
    assert not parts.missing()
    assert find_duplicates(parts, test) == expected
    # Parts that are missing are computed.
    other = HashParts(train, tmp_path / "others", "photos", part_size=5)
    assert find_duplicates(other, test) == expected
    assert not other.missing()


@pytest.mark.slow
@pytest.mark.parametrize("content", ["cut", "other rows", "pickle"])
def test_a_part_that_is_not_whole_is_written_again(content, root, tmp_path):
    parts = HashParts(every(root, "train"), tmp_path / "hashes", "photos", part_size=6)
    hashes = parts.write(0)
    path = parts.path(0)
    arrays = {name: getattr(hashes, name) for name in parts_module._ARRAYS}
    whole = path.read_bytes()
    if content == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "other rows":
        np.savez(path, **{**arrays, "words": arrays["words"][1:]})
    else:
        np.savez(path, **{**arrays, "words": np.array([{}], object)})
    assert parts.missing() == [0, 1, 2]
    parts.write(0)
    assert parts.missing() == [1, 2]
    assert not list(path.parent.glob(".*"))


def test_parts_of_other_images_are_refused(root, tmp_path):
    train, test = every(root, "train"), every(root, "test")
    HashParts(train, tmp_path / "hashes", "photos", part_size=6)
    for source, data, part_size, changed in (
        (test, "photos", 6, "num_images"),
        (train, "others", 6, "data"),
        (train, "photos", 5, "part_size"),
    ):
        with pytest.raises(ValueError, match=f"settings it was begun with. Received: {changed}="):
            HashParts(source, tmp_path / "hashes", data, part_size)


@pytest.mark.slow
def test_the_command_in_shards_and_in_one_piece(root, tmp_path, capsys):
    names = [f"folder:{root / name}" for name in ("train", "test")]
    hashes = ["--hashes", str(tmp_path / "hashes")]
    command = ["deduplicate", *names, "--output", str(tmp_path / "exclude.txt")]
    for shard, written in (("1/2", 1), ("2/2", 0), ("1/2", 0)):
        main([*command, *hashes, "--shard", shard])
        assert f"{written} files of hashes written" in capsys.readouterr().out
        assert not (tmp_path / "exclude.txt").exists()
    main([*command, *hashes])
    command[-1] = str(tmp_path / "again.txt")
    main([*command, "--picture", str(tmp_path / "pairs.png")])
    excluded = read_ids(tmp_path / "exclude.txt")
    assert excluded[0] == "# 2 images that are in a test set"
    assert read_ids(tmp_path / "again.txt") == excluded
    with Image.open(tmp_path / "pairs.png") as sheet:
        assert np.asarray(sheet).std() > 20
