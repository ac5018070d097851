"""Hashes in parts: the result is the same, and nothing is computed twice or read from others."""

import json

import numpy as np
import pytest

from keras_vit.cli import main
from keras_vit.data import HashParts, find_duplicates, find_source
from keras_vit.data.deduplication import hashes as parts_module
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
def test_only_the_examples_of_a_part_are_read(root, tmp_path, monkeypatch):
    train = every(root, "train")
    read = []
    some = type(train).some
    monkeypatch.setattr(
        type(train), "some", lambda self, numbers: read.append(len(numbers)) or some(self, numbers)
    )
    parts = HashParts(train, tmp_path / "hashes", "photos", part_size=4)
    parts.write(1)
    assert read == [4]
    for _ in parts:
        pass
    # 14 images; the second part was there.
    assert read == [4, 4, 4, 2]


@pytest.mark.slow
@pytest.mark.parametrize("content", ["cut", "empty", "other rows", "pickle", "text"])
def test_a_part_that_is_not_whole_is_written_again(content, root, tmp_path):
    parts = HashParts(every(root, "train"), tmp_path / "hashes", "photos", part_size=6)
    hashes = parts.write(0)
    path = parts.path(0)
    arrays = {name: getattr(hashes, name) for name in parts_module._ARRAYS}
    whole = path.read_bytes()
    if content == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "empty":
        path.write_bytes(b"")
    elif content == "other rows":
        np.savez(path, **{**arrays, "words": arrays["words"][1:]})
    elif content == "pickle":
        np.savez(path, **{**arrays, "words": np.array([{}], object)})
    else:
        path.write_text("no part")
    assert parts.missing() == [0, 1, 2]
    parts.write(0)
    assert parts.missing() == [1, 2]
    assert not list(path.parent.glob(".*"))


def test_parts_of_other_images_are_refused(root, tmp_path):
    train, test = every(root, "train"), every(root, "test")
    HashParts(train, tmp_path / "hashes", "photos", part_size=6)
    for source, data, part_size, message in (
        (test, "photos", 6, "num_images=2 instead of 14, digest_of_images=.*"),
        (train, "others", 6, "data='others' instead of 'photos'"),
        (train, "photos", 5, "part_size=5 instead of 6"),
        (
            train.without(train.numbers[:1]),
            "photos",
            6,
            "num_images=13 instead of 14, digest_of_images=.*",
        ),
    ):
        with pytest.raises(ValueError, match=f"settings it was begun with. Received: {message}$"):
            HashParts(source, tmp_path / "hashes", data, part_size)


@pytest.mark.slow
def test_no_image_that_can_be_decoded(root, tmp_path):
    train = every(root, "train")
    broken = train.without([n for n in train.numbers if "broken" not in train.find_id(n)])
    with pytest.raises(ValueError, match=r"1 images \(train\), none of which can be decoded"):
        find_duplicates(HashParts(broken, tmp_path / "hashes", "photos"), every(root, "test"))


@pytest.mark.slow
def test_the_command_in_shards_and_in_one_piece(root, tmp_path, capsys):
    names = [f"folder:{root / name}" for name in ("train", "test")]
    hashes = ["--hashes", str(tmp_path / "hashes")]
    command = ["deduplicate", *names, "--output", str(tmp_path / "exclude.txt")]
    for shard, written in (("1/2", 1), ("2/2", 0), ("1/2", 0)):
        main([*command, *hashes, "--shard", shard])
        out = capsys.readouterr().out
        assert f"{names[0]}: 14 images (all images)\n" in out
        assert f"{written} files of hashes written to {tmp_path / 'hashes'}, nothing" in out
        assert not (tmp_path / "exclude.txt").exists()
    record = json.loads((tmp_path / "hashes" / "hashes.json").read_text())
    assert record["data"] == names[0]
    assert record["num_images"] == 14
    main([*command, *hashes])
    out = capsys.readouterr().out
    assert f"{names[1]}: 2 images (all images)\n" in out
    command[-1] = str(tmp_path / "again.txt")
    main(command)
    of_one_piece = capsys.readouterr().out.replace("again.txt", "exclude.txt")
    assert of_one_piece.splitlines()[2:] == out.splitlines()[2:]
    excluded = (tmp_path / "exclude.txt").read_text()
    assert excluded.startswith("# 2 images that are in a test set\n")
    assert (tmp_path / "again.txt").read_text() == excluded


def test_flags_that_do_not_fit(root, tmp_path, capsys):
    names = [f"folder:{root / name}" for name in ("train", "test")]
    hashes = ["--hashes", str(tmp_path / "hashes")]
    for datasets, flags, message in (
        (names, ["--shard", "1/2"], "as features are. Received: no hashes"),
        (names, [*hashes, "--shard", "0/2"], "`--shard` must be I/N"),
        (names[:1], hashes, "are for test sets, as features are. Received: no test set"),
        (names, ["--similarity", "0.9"], "`similarity` is for features"),
    ):
        with pytest.raises(SystemExit):
            main(["deduplicate", *datasets, "--output", str(tmp_path / "exclude.txt"), *flags])
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
