"""The tables of the ViT paper with accuracies: 2 and 5 to 9."""

from keras_vit.experiments.paper.accuracies import TABLE_2, TABLE_5, TABLE_7
from keras_vit.experiments.paper.layout import PaperTable, pivot
from keras_vit.experiments.paper.positions import TABLE_8
from keras_vit.experiments.paper.result import PRETRAINING, TITLES
from keras_vit.experiments.paper.scaling import TABLE_6
from keras_vit.experiments.paper.text import OBJECTNET
from keras_vit.experiments.paper.vtab import TABLE_9
from keras_vit.experiments.scaling_study import SCALING_STUDY, count_exaflops


def table_2(title):
    """Return Table 2: the largest models after fine-tuning."""
    columns, rows = pivot(TABLE_2, _dataset, lambda result: result.title)
    notes = (
        "Accuracies are top-1 in percent, means and standard deviations of three runs.",
        "Noisy Student's second accuracy on ImageNet is that of FixEfficientNet (Touvron et al., "
        "2020).",
        "{0.model} on ObjectNet ({0.source}): {1} % top-1, {0} % top-5.".format(*OBJECTNET),
        repeated_model(),
    )
    return PaperTable(title, ("dataset", *columns), rows, notes)


def table_5(title):
    """Return Table 5: accuracy by pre-training set."""
    columns, rows = pivot(
        TABLE_5,
        lambda result: f"{PRETRAINING[result.pretraining]}, {_dataset(result)}",
        lambda result: result.model,
    )
    notes = (
        "Top-1 in percent, fine-tuned at 384 pixels, without the averaged weights and the larger "
        "images of Table 2.",
        repeated_model(),
    )
    return PaperTable(title, ("pre-training, dataset", *columns), rows, notes)


def table_6(title):
    """Return Table 6: accuracy and compute, with our count of the compute."""
    columns, rows = pivot(TABLE_6, lambda result: (result.model, result.setting), _dataset)
    lines = []
    for ((model, _), *cells), run in zip(rows, SCALING_STUDY, strict=True):
        counted = count_exaflops(run)
        ours = f"{counted:,.1f}", f"{counted / run.exaflops:.3f}"
        lines.append((model, run.builder, str(run.epochs), *cells, *ours))
    columns = ("model", "builder", "epochs", *columns, "counted", "counted / reported")
    notes = (
        "Top-1 in percent after fine-tuning. The compute is that of pre-training on JFT-300M: 303M "
        "images of 18,000 classes, three forward passes per step.",
        repeated_model(),
    )
    return PaperTable(title, columns, tuple(lines), notes)


def table_7(title):
    """Return Table 7: optimizers of ResNets."""
    columns, rows = pivot(TABLE_7, _dataset, lambda result: f"{result.model}, {result.setting}")
    notes = (
        "Top-1 in percent after fine-tuning; pre-trained on JFT-300M for 7 epochs.",
        "The average is over these five datasets.",
    )
    return PaperTable(title, ("dataset", *columns), rows, notes)


def table_8(title):
    """Return Table 8: position embeddings."""
    columns, rows = pivot(TABLE_8, lambda result: _parts(result)[0], lambda r: _parts(r)[2], "N/A")
    notes = ("5-shot linear accuracy of ViT-B/16 on ImageNet, from 0 to 1.",)
    return PaperTable(title, ("position embedding", *columns), rows, notes)


def table_9(title):
    """Return Table 9: VTAB-1k by task."""
    columns, rows = pivot(TABLE_9, lambda result: result.dataset, lambda result: result.title)
    *tasks, (_, *means) = rows
    notes = ("Top-1 in percent.",)
    return PaperTable(title, ("task", *columns), (*tasks, ("mean", *means)), notes)


def repeated_model():
    """Return a note on ViT-H/14, whose results differ between the tables."""
    found = {}
    for result in (*TABLE_2, *TABLE_5, *TABLE_6):
        is_meant = (result.model, result.pretraining) == ("ViT-H/14", "jft300m")
        if is_meant and result.dataset in TITLES:
            texts = found.setdefault(result.dataset, {})
            texts[result.source] = f"{result.value:.{result.decimals}f}"
    different = [
        f"{TITLES[dataset]} {', '.join(texts.values())}"
        for dataset, texts in found.items()
        if len(texts) == 3 and len({*texts.values()}) > 1
    ]
    return (
        "The paper prints different results of ViT-H/14 from JFT-300M in Tables 2, 5 and 6: "
        f"{'; '.join(different)}. On ImageNet, Table 2 has averaged weights and 518 pixels."
    )


def _dataset(result):
    return TITLES[result.dataset]


def _parts(result):
    return result.setting.partition(", ")
