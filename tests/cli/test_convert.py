"""`keras-vit convert`."""

import json

import pytest

import keras_vit
from tests.fixtures.checkpoint_files import config_next_to
from tests.fixtures.commands import CASE, logits_of, run
from tests.fixtures.images import write_folder
from tests.fixtures.reference import REFERENCE, assert_logits, case_outputs, case_path

TARGETS = [
    ("new.keras", []),
    ("new.npz", []),
    ("new.npz", ["--to", "big_vision"]),
    ("new", ["--to", "timm"]),
    ("new", ["--to", "huggingface"]),
]


@pytest.mark.parametrize(("target", "flags"), TARGETS, ids=str)
def test_each_format_has_the_logits(target, flags, tmp_path, capsys):
    path = tmp_path / "folder" / target
    run(capsys, "convert", case_path(CASE), path, *flags)
    assert_logits(logits_of(path), case_outputs(CASE)["logits"])


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_configurations_keep_the_normalisation(to, tmp_path, capsys):
    source = config_next_to("hf_classifier", tmp_path, {})
    settings = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (source / "preprocessor_config.json").write_text(json.dumps(settings))
    run(capsys, "convert", source, tmp_path / "target", "--to", to)
    mean, deviation = keras_vit.from_checkpoint(tmp_path / "target").image_spec.normalization
    assert (list(mean), list(deviation)) == (settings["image_mean"], settings["image_std"])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["bit.keras", "bit.npz"])
def test_a_resnet_has_the_logits(target, tmp_path, capsys):
    path = tmp_path / target
    source = case_path("k1_bit_resnetv2")
    run(capsys, "convert", source, path, "--image-size", 64)
    model = keras_vit.from_checkpoint(path, image_size=64)
    reference = case_outputs("k1_bit_resnetv2")
    assert_logits(model.predict(reference["images"], verbose=0), reference["logits"])


@pytest.mark.examples
def test_the_size_that_no_file_of_a_resnet_tells(tmp_path, capsys, caplog):
    """A model of 32 pixels, as `.npz`: its size can be given to each command."""
    model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    keras_vit.save_checkpoint(model, tmp_path / "bit.npz", "big_transfer")
    model.save(tmp_path / "bit.keras")
    photos = write_folder(tmp_path / "photos", ("cat", "dog"), count=5)
    data, size = ("--data", f"folder:{photos}"), ("--image-size", 32)

    def metrics_of(name, *more):
        # What follows the progress bar.
        return run(capsys, "evaluate", tmp_path / name, *data, *more).rpartition("step")[2]

    assert metrics_of("bit.npz", *size) == metrics_of("bit.keras")
    metrics_of("bit.npz")
    assert "does not record its image size: it is assumed to be 224 pixels" in caplog.text
    image = photos / "cat" / "0.jpg"
    same = run(capsys, "predict", tmp_path / "bit.keras", image)
    assert run(capsys, "predict", tmp_path / "bit.npz", image, *size) == same
    run(capsys, "export", tmp_path / "bit.npz", tmp_path / "served", *size)
    assert run(capsys, "predict", tmp_path / "served", image) == same


def test_a_resnet_of_version_1_has_another_format(tmp_path, capsys):
    model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32, preactivation=False)
    model.save(tmp_path / "v1.keras")
    assert "(big_vision)" in run(capsys, "convert", tmp_path / "v1.keras", tmp_path / "v1.npz")


@pytest.mark.examples
def test_a_saved_model_has_the_logits(tmp_path, capsys):
    import tensorflow as tf

    run(capsys, "convert", case_path(CASE), tmp_path / "served", "--to", "saved_model")
    serve = tf.saved_model.load(tmp_path / "served" / "1").signatures["float"]
    reference = case_outputs(CASE)
    assert_logits(serve(images=reference["images"])["logits"].numpy(), reference["logits"])


def test_a_model_gets_another_head_and_size(tmp_path, capsys):
    path = tmp_path / "tuned.keras"
    flags = ["--num-classes", 3, "--image-size", 48, 64, "--num-heads", 4]
    run(capsys, "convert", REFERENCE / "timm_token.safetensors", path, *flags)
    model = keras_vit.from_checkpoint(path)
    assert (model.input_shape, model.output_shape) == ((None, 48, 64, 3), (None, 3))


def test_a_model_gets_other_channels(tmp_path, capsys):
    run(capsys, "convert", case_path(CASE), tmp_path / "bands.keras", "--image-channels", 13)
    model = keras_vit.from_checkpoint(tmp_path / "bands.keras")
    assert model.input_shape[-1] == model.image_spec.channels == 13


@pytest.mark.examples
def test_other_commands_take_checkpoints(tmp_path, capsys):
    photos = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    workdir = tmp_path / "run"
    small = "--image-size 16 --batch-size 7 --steps 2 --warmup-steps 1 --min-crop-area 0.5"
    start = ["train", "finetune", "--model", case_path(CASE), "--data", f"folder:{photos}"]
    run(capsys, *start, "--workdir", workdir, *small.split())
    assert "accuracy" in run(capsys, "evaluate", workdir)
    image = photos / "cat" / "0.jpg"
    assert "%" in run(capsys, "predict", case_path(CASE), image)
    run(capsys, "export", case_path(CASE), tmp_path / "served")
    assert "%" in run(capsys, "predict", tmp_path / "served", image)
