"""Tables of accuracies on VTAB-1k as in the paper: per task, per group, and for all tasks."""

import dataclasses

import numpy as np

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.core.text import mean_and_deviation
from keras_vit.data.sources.named_datasets import VTAB_NATURAL, VTAB_SPECIALIZED, VTAB_STRUCTURED
from keras_vit.experiments.paper_results import paper_results
from keras_vit.experiments.reported import TABLE_2, VTAB, builder_of, find_reported
from keras_vit.training.recipe import RECIPES

# Fields of a recipe that change the results only by chance or rounding.
_NEUTRAL = ("seed", "accumulation_steps", "remat")

GROUPS = {
    "natural": tuple(row.name for row in VTAB_NATURAL),
    "specialized": tuple(row.name for row in VTAB_SPECIALIZED),
    "structured": tuple(row.name for row in VTAB_STRUCTURED),
}
TASKS = sum(GROUPS.values(), ())
# Name of the mean over all tasks.
ALL = "VTAB-1k"
SOURCE = "Table 9 of the ViT paper (arXiv 2010.11929)"


def _reported_tasks():
    """Return a dictionary from names of rows of Table 2 to dictionaries from tasks to accuracies.

    Table 2 has the mean over all tasks, Table 9 the accuracies.
    """
    accuracies = {}
    for result in paper_results("Table 9"):
        if result.dataset in TASKS:
            name = f"{result.builder}/{result.pretraining}/{VTAB}"
            accuracies.setdefault(name, {})[result.dataset] = result.value
    return accuracies


# The accuracies in Table 9, in percent.
REPORTED = _reported_tasks()


def mean_accuracies(accuracies):
    """Return the mean accuracy of each group of tasks, and of all tasks.

    Args:
        accuracies: dictionary from tasks to accuracies.

    Returns:
        A dictionary from `"natural"`, `"specialized"`, `"structured"` and `"VTAB-1k"` (all tasks)
        to `(mean, tasks)`. Means are over the tasks in `accuracies`; groups without such a task are
        left out.

    Reference:
        The VTAB paper (arXiv 1910.04867) and its `task_adaptation`: "average accuracy across all
        tasks". In Table 9 of the ViT paper, too, the means are over tasks, not over groups.

    Example:
    >>> means = mean_accuracies({"vtab/dtd": 0.25, "vtab/svhn": 0.75, "vtab/dmlab": 0.5})
    >>> means["natural"], means["VTAB-1k"]
    ((0.5, ('vtab/dtd', 'vtab/svhn')), (0.5, ('vtab/dtd', 'vtab/svhn', 'vtab/dmlab')))
    """
    means = {}
    for group, tasks in {**GROUPS, ALL: TASKS}.items():
        done = tuple(task for task in tasks if task in accuracies)
        if done:
            means[group] = float(np.mean([accuracies[task] for task in done])), done
    return means


def find_row(source, model=None, compare=None):
    """Return the row of Table 2 to compare the results of `vtab` with.

    Args:
        source: name, path or address that the model was loaded from.
        model: the model, which must have the architecture of the row `compare`; not used without
            `compare`.
        compare: name of a row, such as `"ViT_L16/jft300m/vtab"`. `None` to find the row of the
            published checkpoint `source`: there is a row if the paper fine-tunes the checkpoint.

    Returns:
        A `keras_vit.experiments.reported.Reported`, or `None`.

    Raises:
        ValueError: if the row `compare` is not for VTAB, or is for another architecture.

    Example:
    >>> print(find_row("ViT_L16/imagenet21k"), find_row("ViT_Ti16"))
    72.72 +- 0.21 % None
    """
    if compare is None:
        names = [f"{row.name}/{VTAB}" for row in CHECKPOINTS if source in (row.name, row.url)]
        return next((row for row in TABLE_2 if row.name in names), None)
    row = find_reported(compare)
    builder = builder_of(model)
    if row.dataset != VTAB or builder != row.builder:
        raise ValueError(
            "`compare` must name a row with the dataset VTAB and the model's architecture, "
            f"{builder or 'which is not in the paper'}. Received: {compare!r}"
        )
    return row


def table_columns(reported=None):
    """Return the titles of the columns of `table_rows`."""
    return ("task", "measured", *(("reported", "difference") if reported else ()))


def table_rows(accuracies, reported=None):
    """Yield a row per task, then a row per mean: of each group, and of all tasks.

    Args:
        accuracies: dictionary from tasks to accuracies, from 0 to 1; or a list of such
            dictionaries, one per seed. With a list, cells have the mean and the standard deviation
            (n - 1) over the seeds, and only tasks with a result for each seed have a row.
        reported: the row that `find_row` returns, to compare with; or `None`. Its accuracies of
            tasks are from Table 9. The mean of all 19 tasks is from Table 2; other means are
            computed from Table 9, over the same tasks as the measured means.

    Yields:
        Tuples of strings, with the columns of `table_columns(reported)`.

    Example:
    >>> for row in table_rows({"vtab/dtd": 0.75}, find_row("ViT_L16/imagenet21k")):
    ...     print(row)
    ('vtab/dtd', '75.00 %', '74.1 %', '+0.9')
    ('natural, mean of 1 of 7', '75.00 %', '74.1 %', '+0.9')
    ('VTAB-1k, mean of 1 of 19', '75.00 %', '74.1 %', '+0.9')
    """
    reported_tasks = REPORTED.get(reported.name, {}) if reported else {}
    runs = [accuracies] if isinstance(accuracies, dict) else list(accuracies)
    runs = [{task: run[task] for task in TASKS if all(task in r for r in runs)} for run in runs]
    lines = [(task, [run[task] for run in runs], (task,)) for task in runs[0]]
    for group, (_, done) in mean_accuracies(runs[0]).items():
        count = len(GROUPS.get(group, TASKS))
        part = f"{len(done)} of " if len(done) < count else ""
        means = [mean_accuracies(run)[group][0] for run in runs]
        lines.append((f"{group}, mean of {part}{count}", means, done))
    for name, values, done in lines:
        accuracy = np.mean(values)
        cells = name, f"{mean_and_deviation([100 * value for value in values], 2)} %"
        if reported and done == TASKS:
            yield *cells, str(reported), f"{100 * accuracy - reported.accuracy:+.2f}"
        elif reported_tasks:
            mean = np.mean([reported_tasks[task] for task in done])
            yield *cells, f"{mean:.1f} %", f"{100 * accuracy - mean:+.1f}"
        else:
            yield *cells, *(("-", "-") if reported else ())


def describe_row(row, recipe):
    """Return a line with the source of the reported accuracies.

    It names the fields of the recipe that differ from the paper's.
    """
    paper, actual = dataclasses.asdict(RECIPES["finetune_vtab"]), dataclasses.asdict(recipe)
    changed = [name for name in paper if name not in _NEUTRAL and actual[name] != paper[name]]
    settings = f"; other settings than the paper's: {', '.join(changed)}" if changed else ""
    return f"reported: {row.name}, {row.source}, tasks: {SOURCE}{settings}"
