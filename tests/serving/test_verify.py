"""Comparisons of exports with their models."""

import numpy as np
import pytest

from keras_vit.cli import main
from keras_vit.serving.export import export
from keras_vit.serving.image_files import list_image_files, without_broken
from keras_vit.serving.runner import load_runner
from keras_vit.serving.verify import compare, verify
from tests.fixtures.models import NAMES, classifier, files
from tests.fixtures.tiny import images


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "my photos" / "below"
    folder.mkdir(parents=True)
    for index, encoded in enumerate(files(9)):
        (folder / f"{index}.JPG").write_bytes(encoded)
    (folder / "notes.txt").write_text("no image")
    return tmp_path / "my photos"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signature", "batch_size", "on_bad_image"),
    [("bytes", 2, "flag"), ("float", None, "error"), ("float", 2, "error"), ("uint8", 2, "error")],
)
def test_an_export_with_one_signature_is_verified(
    signature, batch_size, on_bad_image, photographs, tmp_path
):
    model = classifier()
    options = {"batch_size": batch_size, "on_bad_image": on_bad_image, "warmup_batch_sizes": ()}
    options["signatures"] = (signature,)
    path = export(model, tmp_path / "pets", **options)
    found = verify(model, path, list_image_files([photographs]), batch_size=4)
    assert found.num_images == 9
    assert found.largest_difference < 1e-5
    assert found.agreement == 1 and found.is_verified


def test_images_of_a_folder_are_those_of_datasets(photographs):
    below = photographs / "below"
    (below / "7.JPG").rename(below / "7")
    (below / "._0.JPG").write_bytes(b"of a Mac")
    assert list_image_files([photographs]) == sorted(below.glob("[0-9]*"))


def test_broken_images_of_a_folder_are_left_out(photographs):
    broken = photographs / "below" / "3.JPG"
    broken.write_bytes(broken.read_bytes()[:40])
    files = list_image_files([photographs])
    assert without_broken(files) == [file for file in files if file != broken]


@pytest.mark.slow
def test_another_model_is_recognized(photographs, tmp_path):
    model = classifier()
    path = export(model, tmp_path / "pets", signatures=("bytes",), warmup_batch_sizes=())
    head = model.get_layer("head")
    # The classes are in another order, and the logits of one are larger.
    head.kernel.assign(np.asarray(head.kernel)[:, ::-1])
    head.bias.assign([0.0, 0.0, 5.0])
    found = verify(model, path, list_image_files([photographs]))
    assert found.largest_difference >= 5 and found.agreement < 1
    assert not found.is_verified


@pytest.mark.parametrize(
    ("logits", "is_verified"),
    [([1.0, 0.0, 0.0], True), ([1.45, 0.0, 0.0], True), ([0, 1, 0], False), ([1.6, 0, 0], False)],
)
def test_other_answers_are_not_verified(logits, is_verified):
    # The logits depend on the images, but hardly.
    expected = np.float32([1, 0, 0]) + 1e-4 * images(9, 3)
    assert compare("logits", expected, np.tile(np.float32(logits), (9, 1))).is_verified == (
        is_verified
    )


@pytest.mark.parametrize("expected", [np.zeros((9, 3)), np.tile([0.0, 1.0, 0.0], (9, 1))])
def test_logits_that_are_equal_for_all_images_verify_nothing(expected):
    assert not compare("logits", expected, expected).is_verified


@pytest.mark.slow
def test_the_command_fails_if_nothing_is_verified(photographs, tmp_path):
    model = classifier()
    model.get_layer("head").set_weights([np.zeros((8, 3)), np.zeros(3)])
    model.save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), str(tmp_path / "pets"), "--format", "litert"]
    with pytest.raises(SystemExit, match="1"):
        main(["export", *arguments, "--verify", str(photographs)])


@pytest.mark.slow
def test_images_that_an_export_flags_are_refused(tmp_path):
    path = export(
        classifier(), tmp_path, signatures=["bytes"], on_bad_image="flag", warmup_batch_sizes=()
    )
    runner, good = load_runner(path), files(2)
    assert runner(good).shape == (2, len(NAMES))
    with pytest.raises(ValueError, match="cannot decode"):
        runner([*good, b"no image"])
