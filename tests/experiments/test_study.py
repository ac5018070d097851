"""Studies: their settings, facts, digests and checks, and a call from Python."""

import dataclasses

import pytest

from keras_vit.checkpoints.named_models import model_digest
from keras_vit.experiments import study
from keras_vit.experiments.grid import grid
from keras_vit.experiments.study_run import Plan
from keras_vit.models.options import POOLINGS, POSITION_EMBEDDINGS
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.small_runs import small_model


def test_settings_are_all_that_models_have():
    def settings(name, *models, **options):
        return Plan(name, "digits_pretrain", "digits", "x", models=models, **options).settings

    kinds = [setting.changes["position_embedding"] for setting in settings("positions", "a")]
    assert set(kinds) == set(POSITION_EMBEDDINGS) - {"rotary"}
    found = settings("positions", "a", values=("none", "2-D, learned"))
    assert [setting.name for setting in found] == ["a, none", "a, 2-D, learned"]
    with pytest.raises(ValueError, match=r"`values` must be one of .* values='3-D'"):
        settings("positions", "a", values=("3-D",))
    kinds = [setting.changes["pooling"] for setting in settings("poolings", "a")]
    assert set(kinds) == set(POOLINGS) - {"token_gap"}
    assert [setting.model for setting in settings("scaling", "a", "b")] == ["a", "b"]
    names = [setting.name for setting in settings("poolings", "a", "b")]
    assert names[:3] == ["a, class token", "a, mean of patches", "a, attention"]
    assert len(set(names)) == len(names) == 6
    sizes = settings("data-size", "a", "b", values=(0.03, 1.0))
    assert [setting.name for setting in sizes] == ["a, 3 %", "a, 100 %", "b, 3 %", "b, 100 %"]
    assert [setting.fraction for setting in sizes] == [0.03, 1.0, 0.03, 1.0]


@pytest.fixture
def trained(monkeypatch):
    """The settings that are trained; a small model is what training returns."""
    calls = []

    def train(recipe, model, data, workdir, **options):
        calls.append((model, recipe.seed, options["fraction"]))
        return trainer.Run(small_model(recipe, 2), [], workdir, recipe)

    monkeypatch.setattr(trainer, "train", train)
    return calls


@pytest.mark.slow
def test_a_study_from_python(tmp_path, trained):
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], seed=3, image_size=16)
    options = {"models": ("ViT_Ti16", "ViT_S16"), "seeds": 2, "classes": ("0", "1")}
    rows = study("scaling", recipe, "digits", tmp_path / "study", **options)
    assert trained == [(model, seed, 1.0) for seed in (3, 4) for model in options["models"]]
    runs = [(row["setting"], row["seed"]) for row in rows[:3]]
    assert runs == [("ViT_Ti16", 3), ("ViT_Ti16", 4), ("ViT_S16", 3)]
    assert all(0 <= row["accuracy"] <= 1 and row["exaflops"] > 0 for row in rows)
    assert (tmp_path / "study" / "study.png").stat().st_size > 10_000
    trained.clear()
    assert study("scaling", recipe, "digits", tmp_path / "study", **options) == rows
    assert not trained
    with pytest.raises(ValueError, match="`name` must be one of .*'sizes'"):
        study("sizes", recipe, "digits", tmp_path / "study")


def test_digests_of_a_study(tmp_path):
    """Data that people can change have digests, the few-shot data too."""
    root = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    data = f"folder:{root}"
    plan = Plan("poolings", "digits_pretrain", data, tmp_path / "study")
    before = plan.conditions()
    assert plan.conditions() == before
    for path in root.rglob("*.jpg"):
        path.write_bytes(encode(random_image(), "JPEG"))
    digest = lambda conditions: conditions[f"data {data}"]["train digest"]  # noqa: E731
    assert digest(plan.conditions()) != digest(before)
    options = {"classes": ("0", "1"), "fewshot_classes": ("2", "3"), "fewshot_data": "digits"}
    conditions = Plan("data-size", "digits_pretrain", "digits", "study", **options).conditions()
    found = [conditions["data digits"], conditions["fewshot"]]
    digests = [value for of in found for name, value in of.items() if name.endswith(" digest")]
    assert len({*digests}) == len(digests) == 3 + 2


def test_each_pretraining_set_has_digests(tmp_path):
    names = [f"folder:{write_folder(tmp_path / n, ('cat', 'dog'), count=10)}" for n in "ab"]
    options = {"values": names, "finetune": "digits_finetune", "finetune_data": "digits"}
    plan = Plan("datasets", "digits_pretrain", None, tmp_path / "study", **options)
    conditions = plan.conditions()
    found = *(conditions[f"data {name}"] for name in names), conditions["finetune_data"]
    assert len({of["train digest"] for of in found}) == 2
    # One of the datasets may be new.
    grid({}, (), None, tmp_path / "new", conditions)
    fewer = dataclasses.replace(plan, values=names[:1]).conditions()
    assert grid({}, (), None, tmp_path / "new", fewer) == []
    changed = {**fewer, "finetune": {**conditions["finetune"], "axial": True}}
    with pytest.raises(ValueError, match="begun with. Received: finetune.axial=True"):
        grid({}, (), None, tmp_path / "new", changed)


@pytest.mark.parametrize(
    "options",
    [
        {"classes": ("0", "1")},
        {"tune": {"dropout": (0.1,)}},
        {"fewshot_data": "digits", "shots": 3},
        {"finetune": "digits_finetune", "finetune_data": "digits"},
    ],
    ids=lambda options: next(iter(options)).removesuffix("_data"),
)
def test_a_study_is_of_one_thing(options, tmp_path):
    """What is left out, or added, is another study; the order of classes does not matter."""
    arguments = ("poolings", "digits_pretrain", "digits", tmp_path / "study")
    without, given = Plan(*arguments), Plan(*arguments, **options)
    for name, before, now in (("a", without, given), ("b", given, without)):
        grid({}, (), None, tmp_path / name, before.conditions())
        with pytest.raises(ValueError, match=f"begun with.*{next(iter(options))[:7]}"):
            grid({}, (), None, tmp_path / name, now.conditions())
    two = (Plan(*arguments, classes=names).conditions() for names in (("0", "1"), ("1", "0")))
    assert next(two) == next(two)


def test_masked_patches_take_any_recipe_of_classes():
    recipe = dataclasses.replace(
        RECIPES["digits_pretrain"],
        head_bias=-10.0,
        class_balance="weights",
        decay="staircase",
        boundaries=(60, 70),
    )
    options = {"finetune": "digits_finetune", "finetune_data": "digits"}
    plan = Plan("pretraining", recipe, "digits", "study", **options)
    masked = dataclasses.replace(recipe, **plan.settings[1].changes)
    assert (masked.loss, masked.boundaries, masked.head_bias) == ("mean_color", (), 0.0)


@pytest.mark.parametrize("other", ["config.json", "model-2.safetensors"])
def test_files_next_to_weights_are_of_the_model(other, tmp_path):
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json"):
        (tmp_path / name).write_text("{}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{}")
    before = model_digest(index)
    assert before == model_digest(index)
    (tmp_path / other).write_text('{"num_attention_heads": 2}')
    assert model_digest(index) != before
