"""`keras-vit resume RUN` goes on with what the run has recorded."""

import json
import pathlib
import signal
from functools import partial

import pytest

from keras_vit.cli import main
from keras_vit.training.save_callbacks import SaveState
from tests.fixtures.commands import error_of, failure_of
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import save_small_model, small_model, small_recipe
from tests.fixtures.stopping import stopping

SIZES = ("--image-size", "16", "--batch-size", "64", "--steps", "4", "--warmup-steps", "1")


@pytest.mark.slow
def test_a_stopped_run_goes_on_by_the_command_that_it_prints(tmp_path, monkeypatch, caplog):
    model = save_small_model(tmp_path)
    fewshot = ("--fewshot-every", "3", "--fewshot-data", "digits", "--fewshot-classes", "0", "1")
    begin = ("train", "digits_finetune", "--model", model, "--data", "digits", *SIZES, *fewshot)
    begin = (*begin, "--classes", "3", "5", "--strategy", "none")
    main([*begin, "--workdir", str(tmp_path / "whole")])
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patched:
        terminate = partial(signal.raise_signal, signal.SIGTERM)
        patched.setattr(SaveState, "on_train_batch_begin", stopping(3, terminate))
        with pytest.raises(SystemExit):
            main([*begin, "--workdir", str(stopped)])
    assert f"to resume: keras-vit resume {stopped}" in caplog.text
    main(["resume", str(stopped)])
    for name in ("metrics.jsonl", "run.json"):
        assert (stopped / name).read_text() == (tmp_path / "whole" / name).read_text()
    main(["resume", str(stopped), "--strategy", "auto"])
    assert json.loads((stopped / "run.json").read_text())["strategy"] == "auto"


@pytest.mark.slow
def test_a_run_goes_on_from_another_directory_and_after_its_model_has_moved(
    tmp_path, monkeypatch, capsys
):
    model, workdir = pathlib.Path(save_small_model(tmp_path)), str(tmp_path / "run")
    begin = ("train", "digits_finetune", "--model", model.name, "--data", "digits", *SIZES)
    monkeypatch.chdir(tmp_path)
    main([*begin, "--workdir", workdir])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    main(["resume", workdir])
    moved = str(model.rename(model.with_name("moved.keras")))
    assert str(model) in error_of(capsys, "resume", workdir)
    main(["resume", workdir, "--model", moved])
    # The run has recorded the place.
    main(["resume", workdir])
    other = str(tmp_path / "other.keras")
    small_model(small_recipe(image_size=16)).save(other)
    assert "model_digest=" in error_of(capsys, "resume", workdir, "--model", other)


@pytest.mark.slow
def test_a_run_goes_on_after_its_images_have_moved(tmp_path, capsys):
    photos = write_folder(tmp_path / "photos", ("ant", "bee"), count=20)
    workdir = str(tmp_path / "run")
    sizes = ("--image-size", "16", "--batch-size", "8", "--steps", "2", "--warmup-steps", "1")
    begin = ("train", "finetune", "--model", save_small_model(tmp_path), *sizes)
    main([*begin, "--data", f"folder:{photos}", "--workdir", workdir])
    moved = photos.rename(tmp_path / "moved")
    assert str(photos) in failure_of(capsys, "resume", workdir)
    main(["resume", workdir, "--data", f"folder:{moved}"])
    main(["resume", workdir])
    next(moved.glob("ant/*.jpg")).unlink()
    assert "images.training=" in error_of(capsys, "resume", workdir)
