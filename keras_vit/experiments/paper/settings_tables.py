"""Tables 1, 3 and 4 of the ViT paper, next to our builders and recipes."""

from keras_vit.evaluation.costs import count_parameters
from keras_vit.experiments.paper.layout import PaperTable
from keras_vit.experiments.paper.result import PRETRAINING, TITLES
from keras_vit.experiments.paper.settings import TABLE_1, TABLE_3, TABLE_4
from keras_vit.models.variants import find_variant
from keras_vit.training.recipes import RECIPES


def table_1(title):
    """Return Table 1: the sizes of models, with our count of their parameters."""
    columns = (
        *("model", "layers", "width D", "MLP", "heads", "parameters"),
        *("builder", "counted", "counted, no head"),
    )
    rows = []
    for size in TABLE_1:
        for builder in size.builders:
            row = find_variant(builder)
            sizes = row.depth, row.embedding_dim, row.mlp_dim, row.num_heads
            counted = [f"{count_parameters(row, classes) / 1e6:.1f}M" for classes in (1000, 0)]
            cells = (*map(str, sizes), f"{size.parameters}M", builder, *counted)
            rows.append((size.model, *cells))
    notes = ("Counted for images of 224 pixels, with a linear head of 1,000 classes and without.",)
    return PaperTable(title, columns, tuple(rows), notes)


def table_3(title):
    """Return Table 3: the settings of pre-training, with our recipes."""
    columns = (
        *("models", "pre-training", "epochs", "base LR", "LR decay", "weight decay", "dropout"),
        *("recipe", "its settings"),
    )
    rows = []
    for row in TABLE_3:
        settings = _pretraining_cells("/".join(map(str, row.epochs)), row)
        for name in row.recipes:
            own = _pretraining_cells(str(RECIPES[name].epochs), RECIPES[name])
            cells = PRETRAINING[row.pretraining], *settings, name, ", ".join(own)
            rows.append((row.models, *cells))
    notes = (
        "Adam (beta1 0.9, beta2 0.999), batches of 4,096, 10,000 steps of warm-up, 224 pixels; on "
        "ImageNet gradients are clipped at global norm 1.",
        "R152x2 for 14 epochs and R200x3 of Table 6 have no row here.",
    )
    return PaperTable(title, columns, tuple(rows), notes)


def _pretraining_cells(epochs, row):
    # The paper writes 8e-4.
    rate = f"{row.learning_rate:.0e}".replace("e-0", "e-")
    return epochs, rate, row.decay, str(row.weight_decay), str(row.dropout)


def table_4(title):
    """Return Table 4: the settings of fine-tuning, with our recipes."""
    columns = ("datasets", "steps", "base LR", "recipe", "its steps", "its base LR")
    rows = []
    for row in TABLE_4:
        datasets = ", ".join(TITLES[name] for name in row.datasets)
        for name in row.recipes:
            recipe = RECIPES[name]
            own = recipe.learning_rates or (recipe.learning_rate,)
            cells = f"{row.steps:,}", _rates(row.learning_rates), name, f"{recipe.steps:,}"
            rows.append((datasets, *cells, _rates(own)))
    notes = (
        "SGD with momentum 0.9, batches of 512, cosine decay, no weight decay, gradients clipped "
        "at global norm 1, 384 pixels.",
        "finetune_imagenet_512 and finetune_imagenet_518 are those of Table 2 for ViT-L/16 and "
        "ViT-H/14, with averaged weights (factor 0.9999).",
    )
    return PaperTable(title, columns, tuple(rows), notes)


def _rates(rates):
    return ", ".join(f"{rate:g}" for rate in rates)
