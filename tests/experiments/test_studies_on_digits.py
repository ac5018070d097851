"""Every study from end to end on the digits, with models and numbers of steps that take seconds."""

import dataclasses

import pytest

from keras_vit.experiments import study
from keras_vit.experiments.study_table import STUDIES
from keras_vit.training import trainer
from keras_vit.training.recipe import RECIPES
from tests.fixtures.small_runs import no_training

VIT = "ViT_Ti16(depth=2, embedding_dim=16, mlp_dim=32, num_heads=2, patch_size=8)"
RESNET = "BiT_R50x1(stages=(1,), width=32)"
CLASSES, OTHERS = ("0", "1", "2"), ("3", "4")
FINETUNE = dataclasses.replace(RECIPES["digits_finetune"], image_size=16, steps=2, warmup_steps=1)
RECIPE = dataclasses.replace(
    RECIPES["digits_pretrain"], image_size=16, batch_size=256, epochs=2, warmup_steps=1
)
TRANSFER = {"finetune": FINETUNE, "finetune_data": "digits", "finetune_classes": OTHERS}
FEWSHOT = {"fewshot_data": "digits", "fewshot_classes": OTHERS, "shots": 2}
# Per study its options, and its number of settings for one model.
OPTIONS = {
    "scaling": ({"models": (VIT, RESNET), **FEWSHOT}, 1),
    "data-size": ({"models": (VIT, RESNET), "values": (0.1, 1.0), **FEWSHOT}, 2),
    "datasets": ({"values": ("digits",), "tune": {"dropout": (0.0, 0.1)}, **TRANSFER}, 1),
    "pretraining": ({**TRANSFER, **FEWSHOT}, 3),
    "optimizers": ({"models": (RESNET,)}, 2),
    "shapes": ({"values": (2.0,)}, 6),
    "poolings": ({"tune": {"learning_rate": (1e-3, 3e-3)}}, 3),
    "positions": (FEWSHOT, 9),
    "axial": ({}, 2),
}


def test_every_study_is_tested():
    assert OPTIONS.keys() == STUDIES.keys()


# The one with most of what a study may have runs always; each takes ten seconds or more.
ALWAYS = ("pretraining",)
NAMES = [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.examples) for n in OPTIONS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_study(name, tmp_path, monkeypatch, capsys):
    options, num_settings = OPTIONS[name]
    options = {"models": (VIT,), "seeds": 1, "classes": CLASSES, **options}
    data = None if name == "datasets" else "digits"
    rows = study(name, RECIPE, data, tmp_path, **options)
    assert len(rows) == num_settings * len(options["models"])
    columns = ["exaflops", "accuracy"]
    columns += ["fewshot"] if "shots" in options else []
    columns += ["finetuned"] if "finetune" in options else []
    for row in rows:
        assert {*columns, *options.get("tune", ())} <= row.keys()
        assert row["exaflops"] > 0
        for column in columns[1:]:
            # A model from scratch has other classes, and masked patches have none.
            assert row[column] is None or 0 <= row[column] <= 1
    assert all(any(row[column] is not None for row in rows) for column in columns)
    assert (tmp_path / "study.png").stat().st_size > 10_000
    monkeypatch.setattr(trainer, "train", no_training)
    assert study(name, RECIPE, data, tmp_path, **options) == rows
