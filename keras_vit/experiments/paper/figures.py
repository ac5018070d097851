"""The figures of the ViT paper with results, 2 to 5, as rows."""

import statistics

from keras_vit.experiments.paper.accuracies import TABLE_2, TABLE_5, TABLE_7
from keras_vit.experiments.paper.layout import PaperTable, pivot
from keras_vit.experiments.paper.result import BUILDERS, PRETRAINING, TITLES
from keras_vit.experiments.paper.scaling import TABLE_6
from keras_vit.experiments.paper.tables import repeated_model
from keras_vit.experiments.paper.text import (
    DRAWN,
    FIGURE_2_DRAWN,
    FIGURE_4_IMAGES,
    FIGURE_4_MODELS,
    TEXT_4,
    TEXT_5,
)
from keras_vit.experiments.paper.vtab import GROUPS, TABLE_9, mean_accuracies
from keras_vit.experiments.scaling_study import SCALING_STUDY, count_exaflops

# Table 7's average is over these; Figure 5's is "over 5 datasets".
AVERAGED = tuple(result.dataset for result in TABLE_7[::4] if result.dataset != "average")


def figure_2(title):
    """Return Figure 2: the groups of VTAB."""
    means = {result.model: str(result) for result in TABLE_2 if result.dataset == "vtab"}
    of_tasks = {
        result.dataset: result.value
        for result in TABLE_9
        if (result.model, result.pretraining) == ("ViT-H/14", "jft300m")
    }
    groups = mean_accuracies(of_tasks)
    vit, bit = "ViT-H/14", "BiT-L R152x4"
    rows = (
        (vit, means[vit], *(f"{groups[group][0]:.1f}" for group in GROUPS)),
        (bit, means[bit], *(DRAWN for _ in GROUPS)),
        *((model, *(DRAWN for _ in range(4))) for model in FIGURE_2_DRAWN),
    )
    notes = (
        "The groups of ViT-H/14 are means of the tasks in Table 9, the means those of Table 2.",
        "The bars of the figure have no numbers.",
    )
    return PaperTable(title, ("model", TITLES["vtab"], *GROUPS), rows, notes)


def figure_3(title):
    """Return Figure 3: accuracy on ImageNet by pre-training set."""
    results = [result for result in TABLE_5 if result.dataset == "imagenet2012"]
    columns, rows = pivot(
        results, lambda result: result.model, lambda result: PRETRAINING[result.pretraining]
    )
    notes = ("Top-1 on ImageNet in percent: the rows of Table 5.", repeated_model())
    return PaperTable(title, ("model", *columns), rows, notes)


def figure_4(title):
    """Return Figure 4: few-shot accuracy by the number of images of JFT-300M."""
    columns = ("model", "builder", *(f"{millions}M images" for millions in FIGURE_4_IMAGES), "cost")
    drawn = [(name, BUILDERS[name], *(DRAWN for _ in range(4)), "-") for name in FIGURE_4_MODELS]
    text = [(models, "-", small, "-", large, large, cost) for models, cost, small, large in TEXT_4]
    notes = (
        "Few-shot linear accuracy on ImageNet; the curves of the figure have no numbers. The last "
        "two rows are from the text of section 4.3.",
        "ViT-b/32 has half the hidden dimensions of ViT-B/32, which are those of ViT_S32.",
    )
    return PaperTable(title, columns, (*drawn, *text), notes)


def figure_5(title):
    """Return Figure 5: accuracy by the compute of pre-training."""
    rows = []
    for run in SCALING_STUDY:
        values = {
            result.dataset: result
            for result in TABLE_6
            if (result.model, result.setting) == (run.name, f"{run.epochs} epochs")
        }
        average = statistics.mean(values[dataset].value for dataset in AVERAGED)
        cells = str(values["exaflops"]), f"{count_exaflops(run):,.1f}", f"{average:.2f}"
        rows.append((run.name, str(run.epochs), *cells, str(values["imagenet2012"])))
    columns = ("model", "epochs", "exaFLOPs", "counted", "average of 5 datasets", "ImageNet")
    names = ", ".join(TITLES[dataset] for dataset in AVERAGED)
    notes = (
        f"Top-1 in percent, from Table 6. The paper does not list the 5 datasets: these are {names}"
        ", over which it averages in Table 7.",
        f"Section 4.4: {TEXT_5}.",
        repeated_model(),
    )
    return PaperTable(title, columns, tuple(rows), notes)
