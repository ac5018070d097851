"""Studies: their settings, facts, digests and checks, and a call from Python."""

import pytest

from keras_vit.experiments import study
from keras_vit.experiments.grid import grid
from keras_vit.experiments.study_run import Plan
from keras_vit.models.options import POOLINGS, POSITION_EMBEDDINGS
from keras_vit.training import trainer
from tests.fixtures.images import encode, random_image, write_folder
from tests.fixtures.small_runs import no_training, small_recipe


def plan_of(name, *models, **options):
    return Plan(name, "digits_pretrain", "digits", "x", models=models, **options)


@pytest.mark.parametrize(
    ("name", "field", "kinds"),
    [
        ("positions", "position_embedding", {*POSITION_EMBEDDINGS} - {"rotary"}),
        ("poolings", "pooling", {*POOLINGS} - {"token_gap"}),
    ],
)
def test_a_study_compares_all_kinds_that_models_have(name, field, kinds):
    assert {setting.changes[field] for setting in plan_of(name, "a").settings} == kinds


def test_a_study_has_a_setting_for_each_model_and_value():
    found = plan_of("data-size", "a", "b", values=(0.03, 1.0)).settings
    assert [setting.name for setting in found] == ["a, 3 %", "a, 100 %", "b, 3 %", "b, 100 %"]
    assert [setting.fraction for setting in found] == [0.03, 1.0, 0.03, 1.0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shapes", {"values": (0.3,)}, "`values` must leave depth=12 of ViT_Ti16 a"),
        ("positions", {"values": ("3-D",)}, "`values` must be one of"),
        ("positions", {"models": ("BiT_R50x1",)}, "must have patches for the study"),
        ("positions", {"tune": {"learning_rate": (-1,)}}, "`learning_rate` must be a positive"),
        ("pretraining", {}, "`finetune` and `finetune_data` must be given together"),
        (
            "pretraining",
            {"finetune": small_recipe(image_size=24), "finetune_data": "digits"},
            "`image_size` must be a multiple",
        ),
    ],
)
def test_a_study_that_would_fail_later_is_not_begun(name, options, message, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "train", no_training)
    recipe = small_recipe(image_size=32)
    with pytest.raises(ValueError, match=message):
        study(name, recipe, "digits", tmp_path / "study", **options)
    assert not (tmp_path / "study").exists()


def test_digests_of_a_study(tmp_path):
    """Data that people can change have digests, the few-shot data too."""
    root = write_folder(tmp_path / "photos", ("cat", "dog"), count=10)
    data = f"folder:{root}"
    plan = Plan("poolings", "digits_pretrain", data, tmp_path / "study")
    before = plan.conditions()
    assert plan.conditions() == before
    for path in root.rglob("*.jpg"):
        path.write_bytes(encode(random_image(), "JPEG"))
    digests = [
        conditions[f"data {data}"]["train digest"] for conditions in (before, plan.conditions())
    ]
    assert digests[0] != digests[1]
    options = {"classes": ("0", "1"), "fewshot_classes": ("2", "3"), "fewshot_data": "digits"}
    conditions = Plan("data-size", "digits_pretrain", "digits", "study", **options).conditions()
    found = [conditions["data digits"], conditions["fewshot"]]
    digests = [value for of in found for name, value in of.items() if name.endswith(" digest")]
    assert len({*digests}) == len(digests) == 3 + 2


def test_each_pretraining_set_has_digests(tmp_path):
    names = [f"folder:{write_folder(tmp_path / n, ('cat', 'dog'), count=10)}" for n in "ab"]
    options = {"values": names, "finetune": "digits_finetune", "finetune_data": "digits"}
    conditions = Plan(
        "datasets", "digits_pretrain", None, tmp_path / "study", **options
    ).conditions()
    found = *(conditions[f"data {name}"] for name in names), conditions["finetune_data"]
    assert len({of["train digest"] for of in found}) == 2


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
