"""Variants and recipes are those of Tables 1, 3 and 4, as a second transcription has them."""

import re

import pytest

from keras_vit.evaluation.costs import count_parameters
from keras_vit.experiments.paper_results import TITLES, paper_rows
from keras_vit.experiments.paper_tables import paper_table
from keras_vit.models import find_variant
from keras_vit.training.recipe import RECIPES, ROWS
from tests.experiments.printed import DATASETS, PRETRAINING, read_printed


@pytest.mark.parametrize("place", range(3))
def test_sizes_of_models(place):
    line, row = read_printed(1)[place], paper_rows("Table 1")[place]
    builders = row["builders"].split()
    shown = [cells for cells in paper_table("Table 1").rows if cells[0] == line["model"]]
    assert [cells[:6] for cells in shown] == [tuple(line.values())] * len(builders)
    counts = []
    for builder in builders:
        variant = find_variant(builder)
        sizes = variant.depth, variant.embedding_dim, variant.mlp_dim, variant.num_heads
        assert [str(size) for size in sizes] == list(line.values())[1:5]
        counts += [count_parameters(variant, classes) for classes in (0, 1000)]
    # With or without a head, with small or large patches.
    assert line["parameters"] in {f"{count / 1e6:.0f}M" for count in counts}
    assert [cells[7] for cells in shown] == [f"{count / 1e6:.1f}M" for count in counts[1::2]]


def settings_of(epochs, row):
    return str(epochs), row.learning_rate, row.decay, row.weight_decay, row.dropout


@pytest.mark.parametrize("place", range(13))
def test_settings_of_pretraining(place):
    line, row = read_printed(3)[place], paper_rows("Table 3")[place]
    rate, *others = (float(line[key]) for key in ("learning_rate", "weight_decay", "dropout"))
    printed = rate, line["decay"], *others
    sets = {**line, "pretraining": PRETRAINING[line["pretraining"]]}
    # The columns have other names, and ours names the recipes too.
    assert list(row.values())[1:-1] == list(sets.values())
    for epochs, name in zip(line["epochs"].split("/"), row["recipes"].split(), strict=True):
        recipe = RECIPES[name]
        assert settings_of(recipe.epochs, recipe) == (epochs, *printed)
        shared = recipe.optimizer, recipe.batch_size, recipe.warmup_steps, recipe.image_size
        assert shared == ("adamw", 4096, 10_000, 224)
        assert recipe.clip_norm == (1 if line["pretraining"] == "ImageNet" else None)


@pytest.mark.parametrize("place", range(4))
def test_settings_of_finetuning(place):
    line, row = read_printed(4)[place], paper_rows("Table 4")[place]
    whole = line["datasets"] in DATASETS
    names = [line["datasets"]] if whole else line["datasets"].split(", ")
    rates = tuple(float(rate) for rate in re.findall(r"[\d.]+", line["learning_rates"]))
    steps = int(line["steps"].replace(",", ""))
    assert row["datasets"] == ", ".join(TITLES[DATASETS[name]] for name in names)
    assert int(row["steps"].replace(",", "")) == steps
    assert tuple(map(float, row["base LR"].split(", "))) == rates
    for name in row["recipes"].split():
        recipe = RECIPES[name]
        assert recipe.steps == steps
        assert (recipe.learning_rates or (recipe.learning_rate,)) == rates
        assert recipe.learning_rate in rates
        shared = recipe.optimizer, recipe.batch_size, recipe.decay, recipe.weight_decay
        assert (*shared, recipe.clip_norm) == ("sgd", 512, "cosine", 0, 1)
        # The larger images have their size in the name of the recipe.
        size = re.search(r"\d+$", name)
        expected = (int(size[0]), 0.9999) if size else (384, None)
        assert (recipe.image_size, recipe.ema_momentum) == expected


def test_no_row_and_no_recipe_of_the_tables_is_left_out():
    assert [len(read_printed(number)) for number in (1, 3, 4)] == [3, 13, 4]
    assert [len(paper_rows(f"Table {number}")) for number in (1, 3, 4)] == [3, 13, 4]
    of_3 = {name for name, row in ROWS.items() if "Table 3 of the ViT" in row.source}
    assert {name for row in paper_rows("Table 3") for name in row["recipes"].split()} == of_3
    of_4 = {name for name, row in ROWS.items() if "4 of the ViT paper" in row.source}
    assert {name for row in paper_rows("Table 4") for name in row["recipes"].split()} == of_4
