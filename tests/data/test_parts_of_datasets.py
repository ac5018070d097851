"""Some of the images of a dataset: fractions, left out ones, splits, workers."""

import shutil

import numpy as np
import pytest

from keras_vit.data import find_source, load, write_records
from tests.data.digits import DIGITS, NUM_TRAIN, batches
from tests.fixtures.images import assert_same, identify, write_folder
from tests.fixtures.photos import write_photos


@pytest.mark.slow
def test_exclude_leaves_out_exactly_those(tmp_path):
    ids = [f"digits#{number}" for number in range(0, 1797, 3)]
    path = tmp_path / "exclude.txt"
    path.write_text("# a comment\n" + "".join(f"{id}\n" for id in ids))
    by_list = load(**DIGITS, exclude=np.array(ids, object))
    by_file = load(**DIGITS, exclude=path)
    assert by_list.info.num_examples == by_file.info.num_examples < NUM_TRAIN * 0.7
    assert_same(list(by_list.as_numpy_iterator()), list(by_file.as_numpy_iterator()))
    numbers = find_source("digits", "train").numbers
    images, labels = (np.concatenate(parts) for parts in zip(*batches(), strict=True))
    kept = numbers % 3 != 0
    expected = [(images[kept], labels[kept])]
    np.testing.assert_array_equal(identify(list(by_file.as_numpy_iterator())), identify(expected))


@pytest.mark.slow
def test_a_dataset_of_some_images_decodes_no_others(tmp_path):
    folder = write_folder(tmp_path / "photos", count=10)
    data = load(f"folder:{folder}", "train", 16, 4)
    source = data.info.dataset.source
    images = np.concatenate([images for images, _ in data.as_numpy_iterator()])
    chosen = np.array([1, 2, 5, 11])
    for number in np.delete(source.numbers, chosen).tolist():
        (folder / source.find_id(number)).write_bytes(b"broken")
    part = data.info.dataset.select(source.numbers[chosen]).batches()
    assert (part.info.num_examples, part.class_names) == (4, data.class_names)
    found = np.concatenate([images for images, _ in part.as_numpy_iterator()])
    np.testing.assert_array_equal(found, images[chosen])


@pytest.mark.slow
def test_fractions_are_parts_of_each_other():
    found = []
    for fraction in (0.1, 0.5, 1):
        dataset = load(**DIGITS, fraction=fraction)
        images = identify(list(dataset.as_numpy_iterator()))
        assert len(images) == dataset.info.num_examples
        assert len(images) == pytest.approx(fraction * NUM_TRAIN, abs=NUM_TRAIN / 40)
        # No two digits have the same pixels.
        found.append({image.tobytes() for image in images})
    assert found[0] < found[1] < found[2]


def test_a_fraction_of_a_folder_hardly_changes_with_another_file(tmp_path):
    train = write_photos(tmp_path / "train", 30, size=(4, 4))

    def chosen():
        part = find_source(f"folder:{tmp_path}", "train+validation").subset(0.3)
        return {part.find_id(number) for number in part.numbers.tolist()}

    before = chosen()
    shutil.copy(train / "china" / "001.png", train / "china" / "000 first.png")
    assert chosen() - {"train/china/000 first.png"} == before


def test_ids_that_start_like_comments_are_left_out(tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    root = write_folder(tmp_path / "photos", ("# x", "y"), count=10)
    path = tmp_path / "exclude.txt"
    path.write_text("# 3 images\n#\n# x/0.jpg\ny/0.jpg\ny/none.jpg\n")
    left = load(f"folder:{root}", "train+validation+test", 4, 4, exclude=path)
    assert left.info.num_examples == 18
    assert "2 of 3 ids to exclude are in the split train+validation+test" in caplog.messages


@pytest.mark.slow
def test_workers_share_a_fraction(tmp_path):
    """The same examples as one worker has, whatever the seed."""
    photos = write_photos(tmp_path / "photos", 40, size=(12, 10))
    write_records(find_source(f"folder:{photos}", "train"), tmp_path, "train", num_files=3)
    options = {"name": f"tfrecord:{tmp_path}/{{split}}-*", "fraction": 0.3}
    whole = identify(batches(**options))
    shards = [batches(**options, shard=(i, 2), training=True, seed=7) for i in range(2)]
    np.testing.assert_array_equal(identify(shards[0] + shards[1]), whole)
