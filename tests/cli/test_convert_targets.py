"""What `keras-vit convert` overwrites, and what it never does."""

import pytest

import keras_vit
from tests.fixtures.commands import CASE, error_of, logits_of, run
from tests.fixtures.reference import assert_logits, case_model, case_outputs, case_path

EXISTING = [
    ("model.keras", []),
    ("model.npz", []),
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
def test_nothing_is_replaced_without_being_asked(target, flags, tmp_path, capsys, unread):
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
def test_nothing_is_written_into_a_run(target, flags, tmp_path, capsys, unread):
    (tmp_path / "run.json").write_text("{}")
    path = tmp_path / target if "." in target else tmp_path
    error = error_of(capsys, "convert", case_path(CASE), path, *flags)
    assert "`target` must not be in the directory of a training run, unless `--overwrite`" in error
    assert list(contents(tmp_path).values()) == [b"{}"]


def test_no_version_is_made_in_a_run(tmp_path, capsys, unread):
    (tmp_path / "run.json").write_text("{}")
    command = ["convert", case_path(CASE), tmp_path, "--to", "saved_model", "--overwrite"]
    assert "`target` must not be in the directory of a training run. " in error_of(capsys, *command)
    assert list(contents(tmp_path).values()) == [b"{}"]


@pytest.mark.parametrize(("target", "flags"), [("model.npz", []), ("hf", ["--to", "huggingface"])])
def test_existing_files_are_overwritten_when_asked(target, flags, tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    path = tmp_path / target
    files = [path] if path.suffix else [path / "model.safetensors", path / "config.json"]
    files[0].parent.mkdir(exist_ok=True)
    for file in files:
        file.write_text("old")
    run(capsys, "convert", case_path(CASE), path, *flags, "--overwrite")
    assert_logits(logits_of(path), case_outputs(CASE)["logits"])


@pytest.mark.slow
def test_other_files_may_be_next_to_the_target(tmp_path, capsys):
    """Only what would be replaced counts, and a new directory below a run is new."""
    (tmp_path / "run.json").write_text("{}")
    run(capsys, "convert", case_path(CASE), tmp_path / "hf", "--to", "huggingface")
    (tmp_path / "empty").mkdir()
    run(capsys, "convert", case_path(CASE), tmp_path / "empty", "--to", "timm")
    source = tmp_path / "empty" / "model.safetensors"
    run(capsys, "convert", tmp_path / "empty", source.with_name("other.keras"))
    assert_logits(logits_of(source.with_name("other.keras")), case_outputs(CASE)["logits"])


def sources(directory):
    """Pairs of a source and a target that is the same, or whose files the source needs."""
    npz = directory / "model.npz"
    npz.write_bytes(case_path(CASE).read_bytes())
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
def test_what_is_read_is_never_replaced(flags, tmp_path, capsys, unread):
    for source, target, to in sources(tmp_path):
        before = contents(tmp_path)
        # Making the source may have warned.
        capsys.readouterr()
        error = error_of(capsys, "convert", source, target, *to, *flags)
        assert "`target` must not be the source" in error
        assert contents(tmp_path) == before


def test_a_link_that_leads_nowhere_exists(tmp_path, capsys, unread):
    (tmp_path / "link.npz").symlink_to(tmp_path / "nothing.npz")
    error = error_of(capsys, "convert", case_path(CASE), tmp_path / "link.npz")
    assert "`target` must be new" in error
