"""Comparisons of exports with their models."""

import re

import numpy as np
import pytest
import tensorflow as tf

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
def test_each_signature_alone(signature, batch_size, on_bad_image, photographs, tmp_path):
    model = classifier()
    options = {"batch_size": batch_size, "on_bad_image": on_bad_image, "warmup_batch_sizes": ()}
    options["signatures"] = (signature,)
    path = export(model, tmp_path / "pets", **options)
    found = verify(model, path, list_image_files([photographs]), batch_size=4)
    assert found.num_images == 9
    assert found.largest_difference < 1e-5
    assert found.agreement == 1 and found.is_verified


def test_images_of_a_folder_are_those_of_datasets(photographs, caplog):
    below = photographs / "below"
    (below / "7.JPG").rename(below / "7")
    (below / "._0.JPG").write_bytes(b"of a Mac")
    with caplog.at_level("WARNING", "keras_vit"):
        assert list_image_files([photographs]) == sorted(below.glob("[0-9]*"))
    (line,) = caplog.messages
    assert "2 files or folders are left out: " in line
    assert "1 hidden" in line and "1 not an image (.txt)" in line


def test_broken_images_of_a_folder_are_left_out(photographs, caplog):
    broken = photographs / "below" / "3.JPG"
    broken.write_bytes(broken.read_bytes()[:40])
    files = list_image_files([photographs])
    with caplog.at_level("WARNING", "keras_vit"):
        assert without_broken(files) == [file for file in files if file != broken]
    assert re.search(r"cannot be decoded are left out: 1; the first: .*3\.JPG", caplog.text)
    with pytest.raises(ValueError, match=r"`images` must be .*3\.JPG"):
        without_broken([broken])


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


def with_head(kernel, bias):
    """Return a classifier with these weights of its head."""
    model = classifier()
    model.get_layer("head").set_weights([kernel, np.array(bias)])
    return model


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


@pytest.mark.parametrize("bias", [0, 1], ids=["of classes", "of images"])
def test_equal_logits_verify_nothing(bias, photographs, tmp_path, capsys):
    with_head(np.zeros((8, 3)), [bias, 0, 0]).save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), str(tmp_path / "pets"), "--format", "litert"]
    with pytest.raises(SystemExit, match="1"):
        main(["export", *arguments, "--verify", str(photographs)])
    assert "Not verified: the logits are equal for all images" in capsys.readouterr().out


@pytest.mark.slow
def test_directories_without_an_export(tmp_path):
    path = export(classifier(), tmp_path / "pets", signatures=["features"], warmup_batch_sizes=())
    with pytest.raises(ValueError, match="`outputs` must be those .*it has features"):
        verify(classifier(), path, [])


@pytest.mark.slow
def test_a_saved_model_of_transformers_is_refused(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 3, 8, 8), name="pixel_values")])
    def serve(pixel_values):
        return {"logits": tf.reduce_mean(pixel_values, (2, 3))}

    tf.saved_model.save(tf.Module(), tmp_path / "1", signatures={"serving_default": serve})
    with pytest.raises(ValueError, match="must be a complete export of images"):
        load_runner(tmp_path / "1")


@pytest.mark.slow
def test_images_that_an_export_flags_are_refused(tmp_path):
    path = export(
        classifier(), tmp_path, signatures=["bytes"], on_bad_image="flag", warmup_batch_sizes=()
    )
    runner, good = load_runner(path), files(2)
    assert runner(good).shape == (2, len(NAMES))
    with pytest.raises(ValueError, match="cannot decode"):
        runner([*good, b"no image"])


@pytest.mark.slow
def test_logits_that_are_not_finite_are_refused(photographs, tmp_path):
    model = with_head(np.full((8, 3), 3e38), [0, 0, 0])
    path = export(model, tmp_path / "pets", signatures=["bytes"], warmup_batch_sizes=())
    with pytest.raises(ValueError, match="finite logits. Received: NaN"):
        verify(classifier(), path, list_image_files([photographs]))


@pytest.mark.slow
def test_images_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="There must be an image. Received"):
        list_image_files([tmp_path])
    (tmp_path / "bad.png").write_text("no image")
    path = export(classifier(), tmp_path / "pets", signatures=["bytes"], warmup_batch_sizes=())
    for file in ("bad.png", "missing.png"):
        with pytest.raises(ValueError, match="`files` must be images that can be decoded"):
            verify(classifier(), path, [tmp_path / file])


@pytest.mark.slow
def test_command(photographs, tmp_path, capsys):
    classifier().save(tmp_path / "model.keras")
    arguments = [str(tmp_path / "model.keras"), str(tmp_path / "served pets")]
    options = ["--signatures", "bytes", "--warmup-batch-sizes", "1", "--verify", str(photographs)]
    main(["export", *arguments, *options])
    out = capsys.readouterr().out
    assert "Verified on 9 images: largest difference of logits " in out
    assert "same class for 100.00%" in out
    main(["predict", str(tmp_path / "served pets"), str(photographs / "below" / "0.JPG")])
    assert capsys.readouterr().out.count("%") == len(NAMES)
