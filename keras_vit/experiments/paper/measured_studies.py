"""The settings of one's own study, next to what the paper reports of them."""

from keras_vit.experiments.paper.accuracies import TABLE_5, TABLE_7
from keras_vit.experiments.paper.positions import STUDIED, TABLE_8
from keras_vit.experiments.paper.result import BUILDERS, TITLES
from keras_vit.experiments.paper.scaling import TABLE_6
from keras_vit.experiments.paper.text import DRAWN, FIGURE_4_IMAGES, FIGURE_4_MODELS
from keras_vit.experiments.studies.table import read_study, summary


def study_cells(name, workdir):
    """Return the table of a study, with a column of the results in a table of the paper.

    Args:
        name: name of a table or figure, as in `paper_table`.
        workdir: directory of the study.

    Returns:
        `(title, columns, rows)`. The second column has what the paper reports of a setting, `"-"`
        if nothing.

    Raises:
        ValueError: if the directory does not have the files of a study.
    """
    facts, found = read_study(workdir)
    kind = facts.get("study")
    title = f"study {kind} on {facts.get('data')}"
    if not found:
        return title, (), ()
    reported = _REPORTED.get((name, kind), lambda setting, facts: None)
    (first, *columns), lines = summary(found)
    rows = ((setting, reported(setting, facts) or "-", *cells) for setting, *cells in lines)
    return title, (first, "reported", *columns), tuple(rows)


def models_of(name):
    """Return the builders of the models that studies may have for a table or figure.

    Example:
    >>> models_of("Table 7")
    ['BiT_R50x1', 'BiT_R152x2']
    """
    if name == "Figure 4":
        return [BUILDERS[model] for model in FIGURE_4_MODELS]
    results = {"Table 5": TABLE_5, "Figure 3": TABLE_5, "Table 6": TABLE_6}
    results |= {"Figure 5": TABLE_6, "Table 7": TABLE_7}
    return list(dict.fromkeys(result.builder for result in results.get(name, ())))


def _of_table_5(setting, facts):
    """Return the accuracy of a model by its pre-training set, on the fine-tuned dataset."""
    return _of_pretraining(setting, facts.get("finetune_data"))


def _of_figure_3(setting, facts):
    """Return the same for the one dataset that the figure has."""
    data = facts.get("finetune_data")
    return _of_pretraining(setting, data) if data == "imagenet2012" else None


def _of_pretraining(setting, dataset):
    for result in TABLE_5:
        name = f"{result.builder}, {result.pretraining}"
        if (name, result.dataset) == (setting, dataset):
            return f"{result} % on {TITLES[dataset]}"
    return None


def _of_table_6(setting, facts):
    """Return the accuracy on ImageNet and the compute of the runs of a model."""
    runs = {}
    for result in TABLE_6:
        if result.builder == setting and result.dataset in ("imagenet2012", "exaflops"):
            runs.setdefault(result.setting, []).append(str(result))
    parts = (f"{epochs}: {' % and '.join(cells)} exaFLOPs" for epochs, cells in runs.items())
    return "; ".join(parts)


def _of_table_7(setting, facts):
    """Return the average accuracy of a ResNet with an optimizer."""
    found = {
        f"{result.builder}, {result.setting}": f"{result} %, average of 5 datasets"
        for result in TABLE_7
        if result.dataset == "average"
    }
    return found.get(setting)


def _of_table_8(setting, facts):
    """Return the few-shot accuracy with a position embedding; the model may be any."""
    settings = [where for kind, where in STUDIED.items() if setting.endswith(f", {kind}")]
    found = (
        f"{r} (5-shot accuracy on ImageNet, from 0 to 1)" for r in TABLE_8 if r.setting in settings
    )
    return next(found, None)


def _of_figure_4(setting, facts):
    """Return that the paper draws a model with a share of JFT-300M, if it does."""
    model, _, share = setting.rpartition(", ")
    shares = {f"{100 * images / FIGURE_4_IMAGES[-1]:.12g} %" for images in FIGURE_4_IMAGES}
    is_drawn = model in {BUILDERS[name] for name in FIGURE_4_MODELS} and share in shares
    return DRAWN if is_drawn else None


# Functions of a setting and the facts of its study, by table and study.
_REPORTED = {
    ("Table 5", "datasets"): _of_table_5,
    ("Table 6", "scaling"): _of_table_6,
    ("Table 7", "optimizers"): _of_table_7,
    ("Table 8", "positions"): _of_table_8,
    ("Figure 3", "datasets"): _of_figure_3,
    ("Figure 4", "data-size"): _of_figure_4,
    ("Figure 5", "scaling"): _of_table_6,
}
