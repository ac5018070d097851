"""Studies from their settings to the figure."""

import csv
import dataclasses
import json
import logging
import types

import pytest

from keras_vit.cli import main
from keras_vit.cli.study import Study
from keras_vit.cli.study_runs import measure_best, run_directory, train_setting
from keras_vit.data import load
from keras_vit.experiments.digests import data_digests
from keras_vit.experiments.studies import STUDIES, Setting, by_setting, data_sizes, run_study
from keras_vit.models import vision_transformer
from keras_vit.models.vit import POOLINGS, POSITION_EMBEDDINGS
from keras_vit.training.recipes import RECIPES
from tests.fixtures.images import encode, random_image, write_folder

FACTS = {"study": "poolings", "steps": 10}


def measured(calls):
    """A function that measures, and notes for what it was called."""

    def measure(setting, seed):
        calls.append((setting.name, seed))
        accuracy = len(setting.name) / 100 + seed / 1000
        return {"images": 100 * setting.fraction, "exaflops": 1e-5, "accuracy": accuracy}

    return measure


def test_settings_are_all_that_models_have():
    kinds = [setting.changes["position_embedding"] for setting in STUDIES["positions"](["a"])]
    assert sorted(kinds) == sorted(POSITION_EMBEDDINGS)
    kinds = [setting.changes["pooling"] for setting in STUDIES["poolings"](["a"])]
    assert sorted(kinds) == sorted(filter(None, POOLINGS))
    assert [setting.model for setting in STUDIES["scaling"](["a", "b"])] == ["a", "b"]
    names = [setting.name for setting in STUDIES["poolings"](["a", "b"])]
    assert len(set(names)) == len(names) == 6
    sizes = data_sizes(["a", "b"], (0.03, 1.0))
    assert [setting.name for setting in sizes] == ["a, 3 %", "a, 100 %", "b, 3 %", "b, 100 %"]
    assert [setting.fraction for setting in sizes] == [0.03, 1.0, 0.03, 1.0]


def test_a_study_goes_on(tmp_path):
    settings, calls = STUDIES["poolings"](["a"]), []
    rows = run_study(settings, [0], measured(calls), tmp_path / "new", FACTS)
    assert calls == [(setting.name, 0) for setting in settings]
    calls.clear()
    rows = run_study(settings, [0, 1], measured(calls), tmp_path / "new", FACTS)
    assert calls == [(setting.name, 1) for setting in settings]
    assert by_setting(rows, "accuracy")["a, class token"] == pytest.approx([0.14, 0.141])
    # Of another model nothing is known.
    calls.clear()
    run_study(STUDIES["poolings"](["b", "a"]), [0], measured(calls), tmp_path / "new", FACTS)
    assert [name for name, _ in calls] == ["b, class token", "b, mean of patches", "b, attention"]
    with (tmp_path / "new" / "study.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["seed"] for row in table] == ["0"] * 3 + ["1"] * 3 + ["0"] * 3
    # What is asked for, in its order.
    rows = run_study(settings[1:2], [1], measured(calls), tmp_path / "new", FACTS)
    assert [(row["setting"], row["seed"]) for row in rows] == [("a, mean of patches", 1)]


def test_what_fails_at_once_is_no_study(tmp_path):
    def fail(setting, seed):
        raise ValueError("the warm-up is too long")

    settings = STUDIES["poolings"](["a"])
    with pytest.raises(ValueError, match="too long"):
        run_study(settings, [0], fail, tmp_path / "new", FACTS)
    run_study(settings, [0], measured([]), tmp_path / "new", {**FACTS, "steps": 20})


def test_a_study_is_of_one_thing(tmp_path):
    settings = STUDIES["poolings"](["a"])
    run_study(settings, [0], measured([]), tmp_path, FACTS)
    with pytest.raises(ValueError, match="begun with. Received: steps=20 instead of 10"):
        run_study(settings, [0], measured([]), tmp_path, {**FACTS, "steps": 20})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="`workdir` must be a new directory"):
        run_study(settings, [0], measured([]), tmp_path / "run", FACTS)
    for text in ("setting,seed,accuracy\na,0,high\n", "setting,accuracy\na,1\n", "a,b\n1,2\n"):
        (tmp_path / "study.csv").write_text(text)
        with pytest.raises(ValueError, match="table must have the columns setting and seed"):
            run_study(settings, [0], measured([]), tmp_path, FACTS)


@pytest.mark.large
def test_command(tmp_path, capsys):
    """Of a tenth of the images and of all of them, for as many steps; other classes few-shot."""
    settings = ["--image-size", "32", "--batch-size", "256", "--warmup-steps", "1"]
    arguments = ["digits_pretrain", "--data", "digits", "--workdir", str(tmp_path / "study")]
    classes = ["--classes", "0", "1", "2", "3", "4"]
    others = ["--fewshot-data", "digits", "--fewshot-classes", "5", "6", "7"]
    options = ["--shots", "2", "--fractions", "0.1", "1", "--epochs", "1", "--seeds", "1"]
    command = ["study", "data-size", *arguments, *settings, *classes, *others, *options]
    main(command)
    assert "few-shot accuracy" in capsys.readouterr().out
    with (tmp_path / "study" / "study.csv").open() as file:
        small, large = csv.DictReader(file)
    assert float(small["images"]) == pytest.approx(float(large["images"]) / 10, rel=0.1)
    assert small["exaflops"] == large["exaflops"]
    assert 0 < float(small["fewshot"]) < 1
    assert (tmp_path / "study" / "study.png").stat().st_size > 10_000
    for name in ("ViT_Ti16_10_seed_0", "ViT_Ti16_100_seed_0"):
        run = tmp_path / "study" / name
        # The same recipe, and as many evaluations to choose from.
        assert json.loads((run / "run.json").read_text())["recipe"]["epochs"] == 1
        assert len((run / "metrics.jsonl").read_text().splitlines()) == 1
    main(command)
    assert "Epoch" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits_pretrain", "--seeds", "0"], "`--seeds` must be positive"),
        (["digits_pretrain", "--models", "ViT_X16"], "`variant` must be the name of"),
        (["digits_pretrain", "--models", "BiT_R50x1"], "must have patches for the study"),
        (["digits_masked_patches"], "the recipe one that trains on classes"),
        (["digits_pretrain", "--shots", "2"], "`--shots` is of the study `data-size` alone"),
        (["digits_pretrain", "--data", "folder:none"], "`folder:PATH` must name a folder"),
    ],
)
def test_wrong_commands(arguments, message, tmp_path, capsys):
    refused("positions", arguments, message, tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fractions", "2"], "`--models` and `--fractions` must be there, each once"),
        (["--fractions", "0.1", "0.1"], "`--models` and `--fractions` must be there, each once"),
        (["--fractions", "1", "0.00001"], "`fraction` must leave an image"),
        (["--fewshot-classes", "2"], "`--fewshot-classes` are of"),
        (["--fewshot-data", "digits", "--fewshot-classes", "2"], "must have at least two classes"),
        (["--fewshot-data", "folder:none"], "`folder:PATH` must name a folder"),
        (["--shots", "0"], "`shots` must be positive"),
    ],
)
def test_wrong_data_sizes(arguments, message, tmp_path, capsys):
    refused("data-size", ["digits_pretrain", *arguments], message, tmp_path, capsys)


def test_the_best_model_is_measured(tmp_path, monkeypatch):
    """By early stopping, and not the last."""
    study = Study("data-size", RECIPES["digits_pretrain"], "digits", tmp_path, shots=2)
    study.classes = ("0", "1")
    (setting,) = data_sizes(["ViT_Ti16"], (1.0,))
    best, last = (tiny_model(bias) for bias in (9.0, -9.0))
    run = run_directory(study, setting, 0)
    run.mkdir()
    (run / "run.json").write_text("{}")
    best.save(run / "best.keras")
    monkeypatch.setattr(
        "keras_vit.cli.study_runs.train_setting",
        lambda *_: (RECIPES["digits_pretrain"], last, 20, 1e-6),
    )
    found = measure_best(study, setting, 0)
    # The best says always 0, the last 1.
    labels = [label for _, y in load("digits", "test", 16, 50, classes=("0", "1")) for label in y]
    assert found["accuracy"] == pytest.approx(1 - sum(map(int, labels)) / len(labels))
    assert found["images"] == 20 and 0 <= found["fewshot"] <= 1


def tiny_model(bias):
    model = vision_transformer(
        patch_size=8, embedding_dim=8, depth=1, num_heads=2, mlp_dim=8, num_classes=2, image_size=16
    )
    model.get_layer("head").bias.assign([bias, 0.0])
    return model


def refused(study, arguments, message, tmp_path, capsys):
    recipe, *rest = arguments
    data = [] if "--data" in rest else ["--data", "digits"]
    with pytest.raises(SystemExit):
        main(["study", study, recipe, *data, "--workdir", str(tmp_path / "study"), *rest])
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert message in error
    assert not (tmp_path / "study").exists()


def test_a_study_is_of_the_same_images(tmp_path):
    write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    recipe = RECIPES["digits_pretrain"]
    study = Study("poolings", recipe, f"folder:{tmp_path / 'photos'}", tmp_path / "study")
    settings = STUDIES["poolings"](["a"])
    run_study(settings, [0], measured([]), study.workdir, study._facts())
    run_study(settings, [1], measured([]), study.workdir, study._facts())
    for path in (tmp_path / "photos").rglob("*.jpg"):
        path.write_bytes(encode(random_image(), "JPEG"))
    with pytest.raises(ValueError, match="begun with. Received: train_digest='.*' instead of '"):
        run_study(settings, [2], measured([]), study.workdir, study._facts())


def test_digests_of_a_study():
    """Of the data that people can change, the few-shot data included."""
    options = {"classes": ("0", "1"), "fewshot_classes": ("2", "3"), "fewshot_data": "digits"}
    study = Study("data-size", RECIPES["digits_pretrain"], "digits", "study", **options)
    facts = study._facts()
    names = [name for name in facts if name.endswith("_digest")]
    assert names == [
        *("train_digest", "validation_digest", "test_digest"),
        *("fewshot_train_digest", "fewshot_test_digest"),
    ]
    assert len({facts[name] for name in names}) == 5
    assert data_digests("cifar10", ("train",)) == {}


def test_a_study_without_digests_goes_on_with_a_warning(tmp_path, caplog):
    settings = STUDIES["poolings"](["a"])
    run_study(settings, [0], measured([]), tmp_path / "new", FACTS)
    now = {**FACTS, "train_digest": "0f"}
    with caplog.at_level(logging.WARNING, logger="keras_vit"):
        run_study(settings, [0, 1], measured([]), tmp_path / "new", now)
    (record,) = caplog.records
    assert "did not record digests" in record.getMessage()
    # From then on they are recorded.
    with pytest.raises(ValueError, match="train_digest='1f' instead of '0f'"):
        run_study(settings, [0], measured([]), tmp_path / "new", {**now, "train_digest": "1f"})


def test_class_order_does_not_change_a_study(tmp_path):
    settings = [Setting("a", "a")]
    run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("1", "0")})
    run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("0", "1")})
    with pytest.raises(ValueError, match="classes=.* instead of"):
        run_study(settings, [0], measured([]), tmp_path, {**FACTS, "classes": ("0", "2")})


@pytest.mark.parametrize(
    "rows", ["a,0,0.5\na,0,0.5\n", "a,0,nan\n", "a,0,50\n", "a,0,-0.1\n", "a,0,inf\n"]
)
def test_an_edited_table(rows, tmp_path):
    run_study([Setting("a", "a")], [0], measured([]), tmp_path, FACTS)
    (tmp_path / "study.csv").write_text(f"setting,seed,accuracy\n{rows}")
    with pytest.raises(ValueError, match="one row for each setting and seed.*study.csv"):
        run_study([Setting("a", "a")], [0], measured([]), tmp_path, FACTS)


def test_a_run_records_how_many_images_it_trains_on(tmp_path, monkeypatch):
    recorded = {}

    def fit(recipe, model, data, workdir, facts, resume):
        recorded.update(facts, steps=recipe.epoch_lengths(data[0].num_examples)[1])

    monkeypatch.setattr("keras_vit.training.fit.fit", fit)
    monkeypatch.setattr(
        "keras_vit.training.starting_model.make_model", lambda *_: types.SimpleNamespace()
    )
    recipe = dataclasses.replace(
        RECIPES["digits_pretrain"], image_size=16, batch_size=50, warmup_steps=1
    )
    study = Study("data-size", recipe, "digits", tmp_path, classes=("0", "1"))
    _, _, num_images, _ = train_setting(study, *data_sizes(["ViT_Ti16"], (0.1,)), 0)
    assert recorded["num_examples"] == num_images < 50
    assert recorded["split"] == "train"
    # The steps of all images.
    assert recorded["steps"] > 1
