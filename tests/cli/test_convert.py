"""`keras-vit convert`."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit.cli import main
from keras_vit.core.text import imagenet_class_names
from tests.fixtures.checkpoint_files import case_arrays, config_next_to, write
from tests.fixtures.commands import CASE, error_of, logits_of, run
from tests.fixtures.images import write_folder
from tests.fixtures.reference import REFERENCE, assert_logits, case_model, case_outputs, case_path

TARGETS = [
    ("new.keras", []),
    ("new.npz", []),
    ("new.npz", ["--to", "big_vision"]),
    ("new", ["--to", "timm"]),
    ("new", ["--to", "huggingface"]),
]


@pytest.mark.parametrize(("target", "flags"), TARGETS, ids=str)
def test_convert(target, flags, tmp_path, capsys):
    path = tmp_path / "folder" / target
    printed = run(capsys, "convert", case_path(CASE), path, *flags)
    assert printed.startswith(f"Wrote {path} (")
    assert "67,594 parameters" in printed
    assert_logits(logits_of(path), case_outputs(CASE)["logits"])


def test_convert_prints_what_a_format_cannot_say_of_images(tmp_path, capsys):
    main(["convert", str(case_path(CASE)), str(tmp_path / "new"), "--to", "timm"])
    assert "images of other sizes will differ: antialias=False" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_convert_keeps_the_normalisation(to, tmp_path, capsys):
    source = config_next_to("hf_classifier", tmp_path, {})
    settings = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (source / "preprocessor_config.json").write_text(json.dumps(settings))
    run(capsys, "convert", source, tmp_path / "target", "--to", to)
    mean, deviation = keras_vit.from_checkpoint(tmp_path / "target").image_spec.normalization
    assert (list(mean), list(deviation)) == (settings["image_mean"], settings["image_std"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.keras", "model.npz", "model.safetensors"])
@pytest.mark.parametrize(("target", "flags"), [*TARGETS, ("new", ["--to", "saved_model"])], ids=str)
def test_convert_refuses_weights_that_are_not_finite(name, target, flags, tmp_path, capsys):
    path = tmp_path / name
    if name == "model.keras":
        model = case_model(CASE)
        model.get_layer("head").bias.assign(np.full(10, np.nan))
        model.save(path)
    elif name == "model.npz":
        write(path, {**case_arrays(CASE), "head/bias": np.full(10, np.nan, "float32")})
    else:
        import safetensors.numpy

        arrays = safetensors.numpy.load_file(case_path("timm_token"))
        safetensors.numpy.save_file({**arrays, "head.bias": np.full(10, np.inf, "float32")}, path)
    error = error_of(capsys, "convert", path, tmp_path / target, *flags, "--num-heads", 4)
    assert "has NaN or infinity" in error
    assert not (tmp_path / target).exists()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["bit.keras", "bit.npz"])
def test_convert_a_resnet(target, tmp_path, capsys):
    path = tmp_path / target
    source = case_path("k1_bit_resnetv2")
    printed = run(capsys, "convert", source, path, "--image-size", 64)
    assert ("(big_transfer)" in printed) == (target == "bit.npz")
    model = keras_vit.from_checkpoint(path, image_size=64)
    reference = case_outputs("k1_bit_resnetv2")
    assert_logits(model.predict(reference["images"], verbose=0), reference["logits"])


@pytest.mark.examples
def test_the_size_that_no_file_of_a_resnet_tells(tmp_path, capsys, caplog):
    """A run at 32 pixels, as `.npz`: its size is warned about and can be given to each command."""
    model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32)
    with caplog.at_level("WARNING", "keras_vit"):
        keras_vit.save_checkpoint(model, tmp_path / "bit.npz", "big_transfer")
    assert "do not record image_size: (32, 32) becomes (224, 224)" in caplog.text
    model.save(tmp_path / "bit.keras")
    photos = write_folder(tmp_path / "photos", ("cat", "dog"), count=5)
    data, size = ("--data", f"folder:{photos}"), ("--image-size", 32)

    def metrics_of(name, *more):
        # What follows the progress bar.
        return run(capsys, "evaluate", tmp_path / name, *data, *more).rpartition("step")[2]

    assert metrics_of("bit.npz", *size) == metrics_of("bit.keras")
    caplog.clear()
    metrics_of("bit.npz")
    assert "does not record its image size: it is assumed to be 224 pixels" in caplog.text
    image = photos / "cat" / "0.jpg"
    same = run(capsys, "predict", tmp_path / "bit.keras", image)
    assert run(capsys, "predict", tmp_path / "bit.npz", image, *size) == same
    run(capsys, "export", tmp_path / "bit.npz", tmp_path / "served", *size)
    assert run(capsys, "predict", tmp_path / "served", image) == same
    error = error_of(capsys, "predict", tmp_path / "served", image, *size)
    assert "must be None for an export" in error


def test_convert_a_version_1(tmp_path, capsys):
    model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32, preactivation=False)
    model.save(tmp_path / "v1.keras")
    assert "(big_vision)" in run(capsys, "convert", tmp_path / "v1.keras", tmp_path / "v1.npz")


@pytest.mark.examples
def test_convert_to_a_saved_model(tmp_path, capsys):
    import tensorflow as tf

    printed = run(capsys, "convert", case_path(CASE), tmp_path / "served", "--to", "saved_model")
    assert f"Wrote {tmp_path / 'served' / '1'} (saved_model)" in printed
    serve = tf.saved_model.load(tmp_path / "served" / "1").signatures["float"]
    reference = case_outputs(CASE)
    assert_logits(serve(images=reference["images"])["logits"].numpy(), reference["logits"])


def test_convert_for_fine_tuning(tmp_path, capsys):
    path = tmp_path / "tuned.keras"
    flags = ["--num-classes", 3, "--image-size", 48, 64, "--num-heads", 4]
    run(capsys, "convert", REFERENCE / "timm_token.safetensors", path, *flags)
    model = keras_vit.from_checkpoint(path)
    assert (model.input_shape, model.output_shape) == ((None, 48, 64, 3), (None, 3))


@pytest.mark.examples
def test_other_commands_take_checkpoints(tmp_path, capsys):
    photos = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    workdir = tmp_path / "run"
    small = "--image-size 16 --batch-size 7 --steps 2 --warmup-steps 1 --min-crop-area 0.5"
    start = ["train", "finetune", "--model", case_path(CASE), "--data", f"folder:{photos}"]
    run(capsys, *start, "--workdir", workdir, *small.split())
    assert json.loads((workdir / "run.json").read_text())["class_names"] == ["cat", "dog"]
    image = next(photos.rglob("*.png"), None) or next(photos.rglob("*.jp*g"))
    assert "%" in run(capsys, "predict", case_path(CASE), image)
    run(capsys, "export", case_path(CASE), tmp_path / "served")
    assert "%" in run(capsys, "predict", tmp_path / "served", image)


@pytest.mark.slow
def test_classes_of_imagenet_have_names_only_where_a_file_says_so(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32)
    model.get_layer("head").bias.assign(np.eye(1000)[1] * 20)
    keras_vit.save_checkpoint(model, tmp_path / "imagenet.npz", "google")
    photos = write_folder(tmp_path / "photos", ("cat",), count=1)
    image = next(path for path in photos.rglob("*") if path.is_file())
    assert "  1 100.0%" in run(capsys, "predict", tmp_path / "imagenet.npz", image, "--top", 1)
    model.class_names = imagenet_class_names(1000)
    model.save(tmp_path / "imagenet.keras")
    for to in ("timm", "huggingface", "saved_model"):
        run(capsys, "convert", tmp_path / "imagenet.keras", tmp_path / to, "--to", to)
        assert "  goldfish " in run(capsys, "predict", tmp_path / to, image, "--top", 1)
