"""The commands that read and write checkpoint files, in this process."""

import json

import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.checkpoints.archives import normalisation_next_to
from keras_vit.training.runs.saved_models import save_model
from tests.cli.test_cli import error_of, run
from tests.fixtures.checkpoint_files import case_arrays, config_next_to, write
from tests.fixtures.images import write_folder
from tests.fixtures.reference import REFERENCE, assert_logits, case_model, case_outputs, case_path

CASE = "a_vit_token"


def logits_of(path):
    images = case_outputs(CASE)["images"]
    return ops.convert_to_numpy(keras_vit.from_checkpoint(path)(images))


def test_checkpoints(capsys):
    lines = run(capsys, "checkpoints", "b16", "augreg").splitlines()
    assert lines[0].split() == ["name", "size", "classes", "top-1"]
    assert [line.split()[0] for line in lines[1:]] == [
        row.name for row in keras_vit.list_checkpoints("b16 augreg")
    ]
    everything = run(capsys, "checkpoints", "--urls").splitlines()
    assert len(everything) == 1 + len(keras_vit.list_checkpoints())
    assert everything[1].split()[-1].startswith("gs://")
    zero = run(capsys, "checkpoints", "ViT_L32/imagenet21k", "--markdown").splitlines()
    assert zero[2] == "| ViT_L32/imagenet21k | 224 | 21843 (zero) | - |"


def test_no_such_checkpoint(capsys):
    assert "`filter` must be words of" in error_of(capsys, "checkpoints", "resnext")


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("model.keras", []),
        ("model.npz", []),
        ("big.npz", ["--to", "big_vision"]),
        ("timm", ["--to", "timm"]),
        ("hf", ["--to", "huggingface"]),
    ],
)
def test_convert(target, flags, tmp_path, capsys):
    path = tmp_path / "new" / target
    printed = run(capsys, "convert", case_path(CASE), path, *flags)
    assert printed.startswith(f"Wrote {path} (")
    assert "67,594 parameters" in printed
    assert_logits(logits_of(path), case_outputs(CASE)["logits"])


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_convert_keeps_the_normalisation(to, tmp_path, capsys):
    source = config_next_to("hf_classifier", tmp_path, {})
    settings = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (source / "preprocessor_config.json").write_text(json.dumps(settings))
    run(capsys, "convert", source, tmp_path / "target", "--to", to)
    mean, deviation = normalisation_next_to(tmp_path / "target")
    assert (list(mean), list(deviation)) == (settings["image_mean"], settings["image_std"])


EXISTING = [
    ("model.keras", []),
    ("model.npz", []),
    ("model.npz", ["--to", "big_vision"]),
    ("model.npz", ["--to", "big_transfer"]),
    ("model.safetensors", []),
    ("model.safetensors", ["--to", "huggingface"]),
    ("timm", ["--to", "timm"]),
    ("hf", ["--to", "huggingface"]),
]


def contents(directory):
    """The files of a directory and those below it, with their bytes."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def unread(monkeypatch):
    """Fails a test that downloads or loads a model."""

    def fail(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("keras_vit.checkpoints.from_checkpoint", fail)


@pytest.mark.parametrize(("target", "flags"), EXISTING, ids=str)
def test_convert_replaces_nothing_without_being_asked(target, flags, tmp_path, capsys, unread):
    path = tmp_path / target
    if path.suffix:
        path.write_text("old")
    else:
        path.mkdir()
        (path / "notes.txt").write_text("old")
    before = contents(tmp_path)
    error = error_of(capsys, "convert", case_path(CASE), path, *flags)
    assert "`target` must be new, unless `--overwrite` is given" in error
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("target", "flags"), EXISTING, ids=str)
def test_convert_writes_nothing_into_a_run(target, flags, tmp_path, capsys, unread):
    (tmp_path / "run.json").write_text("{}")
    path = tmp_path / target if "." in target else tmp_path
    error = error_of(capsys, "convert", case_path(CASE), path, *flags)
    assert "`target` must not be in the directory of a training run, unless `--overwrite`" in error
    assert list(contents(tmp_path).values()) == [b"{}"]


def test_convert_makes_no_version_in_a_run(tmp_path, capsys, unread):
    (tmp_path / "run.json").write_text("{}")
    command = ["convert", case_path(CASE), tmp_path, "--to", "saved_model", "--overwrite"]
    assert "`target` must not be in the directory of a training run. " in error_of(capsys, *command)
    assert list(contents(tmp_path).values()) == [b"{}"]


@pytest.mark.parametrize(
    ("target", "flags"), [("model.keras", []), ("model.npz", []), ("hf", ["--to", "huggingface"])]
)
def test_convert_overwrites_when_asked(target, flags, tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    path = tmp_path / target
    files = [path] if path.suffix else [path / "model.safetensors", path / "config.json"]
    files[0].parent.mkdir(exist_ok=True)
    for file in files:
        file.write_text("old")
    run(capsys, "convert", case_path(CASE), path, *flags, "--overwrite")
    assert_logits(logits_of(path), case_outputs(CASE)["logits"])


def test_convert_next_to_other_files(tmp_path, capsys):
    """Only what would be replaced counts, and a new directory below a run is new."""
    (tmp_path / "run.json").write_text("{}")
    run(capsys, "convert", case_path(CASE), tmp_path / "hf", "--to", "huggingface")
    (tmp_path / "empty").mkdir()
    run(capsys, "convert", case_path(CASE), tmp_path / "empty", "--to", "timm")
    source = tmp_path / "empty" / "model.safetensors"
    run(capsys, "convert", tmp_path / "empty", source.with_name("other.keras"))
    assert_logits(logits_of(source.with_name("other.keras")), case_outputs(CASE)["logits"])


def npz_source(directory):
    source = directory / "model.npz"
    source.write_bytes(case_path(CASE).read_bytes())
    return source


def sources(directory):
    """Pairs of a source and a target that is the same, or whose files the source needs."""
    npz = npz_source(directory)
    (directory / "link.npz").symlink_to(npz)
    (directory / "linked").symlink_to(directory, target_is_directory=True)
    yield npz, npz, []
    yield npz, directory / "link.npz", []
    yield directory / "link.npz", npz, ["--to", "big_vision"]
    yield npz, directory / "linked" / "model.npz", []
    yield npz, directory / "nowhere" / ".." / "model.npz", []
    workdir = directory / "run"
    workdir.mkdir()
    (workdir / "run.json").write_text("{}")
    case_model(CASE).save(workdir / "best.keras")
    yield workdir, workdir / "best.keras", []
    saved = directory / "hf"
    keras_vit.save_checkpoint(case_model("hf_classifier"), saved, "huggingface")
    yield saved, saved, ["--to", "huggingface"]
    yield saved, saved / "model.safetensors", []
    yield saved / "model.safetensors", saved, ["--to", "timm"]
    yield directory / "linked" / "hf", saved, ["--to", "timm"]
    alone = directory / "alone"
    alone.mkdir()
    keras_vit.save_checkpoint(case_model("timm_token"), alone / "weights.safetensors", "timm")
    # The configuration would be read with the weights from then on.
    yield alone / "weights.safetensors", alone, ["--to", "huggingface"]


@pytest.mark.parametrize("flags", [[], ["--overwrite"]], ids=str)
def test_convert_never_replaces_what_it_reads(flags, tmp_path, capsys, unread):
    for source, target, to in sources(tmp_path):
        before = contents(tmp_path)
        # Making the source may have warned.
        capsys.readouterr()
        error = error_of(capsys, "convert", source, target, *to, *flags)
        assert "`target` must not be what the model is read from" in error
        assert contents(tmp_path) == before


def test_convert_replaces_a_link_and_not_what_it_leads_to(tmp_path, capsys, unread):
    (tmp_path / "link.npz").symlink_to(tmp_path / "nothing.npz")
    error = error_of(capsys, "convert", case_path(CASE), tmp_path / "link.npz")
    assert "`target` must be new" in error


@pytest.mark.parametrize("name", ["model.keras", "model.npz", "model.safetensors"])
@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("new.keras", []),
        ("new.npz", []),
        ("new.npz", ["--to", "big_vision"]),
        ("new", ["--to", "timm"]),
        ("new", ["--to", "huggingface"]),
        ("new", ["--to", "saved_model"]),
    ],
    ids=str,
)
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
    assert "do not tell image_size: (32, 32) becomes (224, 224)" in caplog.text
    model.save(tmp_path / "bit.keras")
    photos = write_folder(tmp_path / "photos", ("cat", "dog"), count=5)
    data, size = ("--data", f"folder:{photos}"), ("--image-size", 32)

    def metrics_of(name, *more):
        # What follows the progress bar.
        return run(capsys, "evaluate", tmp_path / name, *data, *more).rpartition("step")[2]

    assert metrics_of("bit.npz", *size) == metrics_of("bit.keras")
    caplog.clear()
    metrics_of("bit.npz")
    assert "does not tell its image size: it is taken for 224 pixels" in caplog.text
    image = photos / "cat" / "0.jpg"
    same = run(capsys, "predict", tmp_path / "bit.keras", image)
    assert run(capsys, "predict", tmp_path / "bit.npz", image, *size) == same
    run(capsys, "export", tmp_path / "bit.npz", tmp_path / "served", *size)
    assert run(capsys, "predict", tmp_path / "served", image) == same
    error = error_of(capsys, "predict", tmp_path / "served", image, *size)
    assert "`--image-size` must not be given for an export" in error
    assert "image_size=0" in error_of(
        capsys, "inspect-checkpoint", tmp_path / "bit.npz", "--image-size", 0
    )


def test_convert_a_version_1(tmp_path, capsys):
    model = keras_vit.resnet((1,), 32, num_classes=2, image_size=32, preactivation=False)
    model.save(tmp_path / "v1.keras")
    assert "(big_vision)" in run(capsys, "convert", tmp_path / "v1.keras", tmp_path / "v1.npz")


@pytest.mark.examples
def test_inspect_resnets(tmp_path, capsys):
    lines = run(capsys, "inspect-checkpoint", case_path("k1_bit_resnetv2")).splitlines()
    facts = facts_of("\n".join(lines))
    assert (facts["format"], facts["builder"]) == ("big_transfer", "resnet")
    assert facts["options"] == "stages=(2, 1, 1, 1), width=32"
    against = run(capsys, "inspect-checkpoint", case_path(CASE), "--against", "BiT_R50x1")
    assert "family: a Vision Transformer, not a ResNet" in against
    path = tmp_path / "R26.npz"
    keras_vit.save_checkpoint(keras_vit.R26_S32(num_classes=3, image_size=64), path, "google")
    facts = facts_of(run(capsys, "inspect-checkpoint", path))
    assert (facts["builder"], facts["options"]) == ("R26_S32", "none")


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "FILE", "target"], "`--to` must be given"),
        (["convert", "FILE", "target.h5", "--to", "keras"], "`target` must end with .keras"),
        (["convert", "FILE", "target.npz", "--to", "timm"], "`path` must be a directory or a"),
        (["convert", "FILE", "x.keras", "--image-size", 1, 2, 3], "`--image-size` must be one"),
        (["convert", "FILE", "x.keras", "--image-size", 33], "`image_size` must be a multiple of"),
        (["convert", "missing.npz", "x.keras"], "`path` must be an existing file"),
        (["inspect-checkpoint", "missing.npz"], "`path` must be an existing file"),
        (
            ["inspect-checkpoint", "FILE", "--against", "ViT_B17"],
            "the name of a checkpoint, such as",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_wrong_argument(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [case_path(CASE) if word == "FILE" else word for word in arguments]
    assert message in error_of(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def facts_of(printed):
    return dict(line.split(maxsplit=1) for line in printed.splitlines() if len(line.split()) > 1)


def test_inspect(capsys):
    facts = facts_of(run(capsys, "inspect-checkpoint", case_path("g_vit_token_bf16")))
    assert facts["format"] == "google"
    assert facts["parameters"] == "67,594"
    assert facts["stored"] == "as     bfloat16"
    assert facts["head"] == "10 classes"
    assert "num_heads=4" in facts["options"]


def test_inspect_a_head_that_is_not_finite(tmp_path, capsys):
    path = write(
        tmp_path / "nan.npz", {**case_arrays(CASE), "head/bias": np.full(10, np.nan, "f4")}
    )
    assert facts_of(run(capsys, "inspect-checkpoint", path))["head"] == (
        "10 classes, with NaN or infinity"
    )


def test_inspect_a_published_architecture(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(num_classes=3, image_size=32, activation="gelu")
    keras_vit.save_checkpoint(model, tmp_path, "huggingface")
    lines = run(capsys, "inspect-checkpoint", tmp_path, "--against", "ViT_S16").splitlines()
    facts = facts_of("\n".join(lines))
    assert facts["builder"] == "ViT_Ti16"
    assert facts["options"] == "activation='gelu'"
    assert facts["head"] == "3 classes, all zeros"
    assert lines[-5:] == [
        "against ViT_S16: 4 differences",
        "  embedding_dim: 192, not 384",
        "  num_heads: 3, not 6",
        "  mlp_dim: 768, not 1536",
        "  activation: gelu, not gelu_tanh",
    ]


def test_inspect_against_another_checkpoint(tmp_path, capsys):
    case_model(CASE).save(tmp_path / "same.keras")
    other = case_model(CASE)
    other.get_layer("block_1").mlp.dense_0.bias.assign_add(np.ones(96))
    other.save(tmp_path / "other.keras")
    command = ["inspect-checkpoint", case_path(CASE), "--against"]
    same = run(capsys, *command, tmp_path / "same.keras").splitlines()
    assert same[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, tmp_path / "other.keras").splitlines()
    assert lines[-1] == "  block_1/mlp/dense_0/bias: values differ by up to 1"
    lines = run(capsys, *command, case_path("i3_bv_map_learn")).splitlines()
    assert lines[-1].endswith("more")
    assert "  class_token/token: only in the first" in lines


def test_inspect_names_of_classes(tmp_path, capsys):
    names = [f"class {index}" for index in range(10)]
    model = case_model(CASE)
    paths = [tmp_path / name for name in ("hf", "same.keras", "other.keras")]
    keras_vit.save_checkpoint(model, paths[0], "huggingface", class_names=names)
    save_model(model, paths[1], {"class_names": names})
    save_model(model, paths[2], {"class_names": [*names[:8], "class 9", "class 8"]})
    command = ["inspect-checkpoint", paths[0], "--against"]
    lines = run(capsys, *command, paths[1]).splitlines()
    assert "class names   class 0, class 1, class 2, class 3, class 4, ..." in lines
    assert lines[-1].endswith("same.keras: no differences")
    lines = run(capsys, *command, paths[2]).splitlines()
    assert lines[-3].endswith("other.keras: 2 differences")
    assert lines[-1] == "  class 9: 'class 9' and 'class 8'"
    # Files that record none are not compared with others.
    lines = run(capsys, *command, case_path(CASE)).splitlines()
    assert lines[-1].endswith(": no differences")


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


def test_classes_of_imagenet_have_names(tmp_path, capsys):
    model = keras_vit.ViT_Ti16(num_classes=1000, image_size=32)
    model.get_layer("head").bias.assign(np.eye(1000)[1] * 20)
    keras_vit.save_checkpoint(model, tmp_path / "imagenet.npz", "google")
    photos = write_folder(tmp_path / "photos", ("cat",), count=1)
    image = next(path for path in photos.rglob("*") if path.is_file())
    assert "goldfish" in run(capsys, "predict", tmp_path / "imagenet.npz", image, "--top", 1)
