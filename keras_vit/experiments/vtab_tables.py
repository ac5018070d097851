"""Accuracies on VTAB-1k as the paper shows them: by task, by group, and the mean of all."""

import dataclasses

import numpy as np

from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.experiments.comparison import builder_of
from keras_vit.experiments.reported import TABLE_2, VTAB, find_reported
from keras_vit.experiments.vtab_tasks import GROUPS, TASKS
from keras_vit.training.recipes import RECIPES

# Settings that change the results by rounding and chance alone.
_FREE = ("seed", "accumulation_steps", "remat")
# Name of the mean over all tasks.
ALL = "VTAB-1k"

# In percent, in the order of `TASKS`; the row of Table 2 is the mean.
SOURCE = "Table 9 of the ViT paper (arXiv 2010.11929)"
_TABLE_9 = {
    "ViT_H14/jft300m/vtab": (
        *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9),
        *(83.3, 96.7, 91.4, 76.6),
        *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
    ),
    "ViT_L16/jft300m/vtab": (
        *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4),
        *(83.6, 96.5, 89.7, 77.1),
        *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
    ),
    "ViT_L16/imagenet21k/vtab": (
        *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9),
        *(82.5, 95.6, 85.2, 75.3),
        *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
    ),
}
REPORTED = {name: dict(zip(TASKS, row, strict=True)) for name, row in _TABLE_9.items()}


def mean_accuracies(accuracies):
    """Return the means of the groups, and the mean over all tasks, which counts each task once.

    Args:
        accuracies: dictionary from tasks to accuracies.

    Returns:
        A dictionary from `"natural"`, `"specialized"`, `"structured"` and `"VTAB-1k"` to
        `(mean, tasks)`, over the tasks that have an accuracy; without groups that have none.

    Reference:
        The VTAB paper (arXiv 1910.04867) and its `task_adaptation`: "average accuracy across all
        tasks". The means in Table 9 of the ViT paper are these, and not means of groups.

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
    """Return the row of Table 2 to compare the results with.

    Args:
        source: what the model was loaded from. The name or the address of a published checkpoint
            that the paper fine-tunes is enough to find the row.
        model: the model, to check against the architecture of a named row.
        compare: name of a row, such as `"ViT_L16/jft300m/vtab"`, for any other `source`.

    Returns:
        A `keras_vit.experiments.reported.Reported`, or `None`.

    Raises:
        ValueError: if there is no such row for VTAB, or it is for another architecture.

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
            "`compare` must name a row of VTAB and of the model's architecture, "
            f"{builder or 'which is not in the paper'}. Received: {compare!r}"
        )
    return row


def table_columns(reported=None):
    """Return the columns of `table_rows`."""
    return ("task", "measured", *(("reported", "difference") if reported else ()))


def table_rows(accuracies, reported=None):
    """Return a row for each task that has a result, then the mean of each group and of all.

    Args:
        accuracies: dictionary from tasks to accuracies, from 0 to 1.
        reported: a row of `find_row` to compare with. Accuracies of its tasks are those of Table 9,
            and a mean is over the tasks that have a result; that of all 19 is in Table 2.

    Yields:
        A tuple of strings for each, under `table_columns(reported)`.

    Example:
    >>> for row in table_rows({"vtab/dtd": 0.75}, find_row("ViT_L16/imagenet21k")):
    ...     print(row)
    ('vtab/dtd', '75.00 %', '74.1 %', '+0.9')
    ('natural, mean of 1 of 7', '75.00 %', '74.1 %', '+0.9')
    ('VTAB-1k, mean of 1 of 19', '75.00 %', '74.1 %', '+0.9')
    """
    of_tasks = REPORTED.get(reported.name, {}) if reported else {}
    lines = [(task, accuracies[task], (task,)) for task in TASKS if task in accuracies]
    for group, (mean, done) in mean_accuracies(accuracies).items():
        count = len(GROUPS.get(group, TASKS))
        part = f"{len(done)} of " if len(done) < count else ""
        lines.append((f"{group}, mean of {part}{count}", mean, done))
    for name, accuracy, done in lines:
        cells = name, f"{100 * accuracy:.2f} %"
        if reported and done == TASKS:
            yield *cells, str(reported), f"{100 * accuracy - reported.accuracy:+.2f}"
        elif of_tasks:
            mean = np.mean([of_tasks[task] for task in done])
            yield *cells, f"{mean:.1f} %", f"{100 * accuracy - mean:+.1f}"
        else:
            yield *cells, *(("-", "-") if reported else ())


def describe_row(row, recipe):
    """Return a line with the source of reported accuracies, and the recipe's other settings."""
    wanted, had = dataclasses.asdict(RECIPES["finetune_vtab"]), dataclasses.asdict(recipe)
    others = [name for name in wanted if name not in _FREE and had[name] != wanted[name]]
    settings = f"; other settings than the paper's: {', '.join(others)}" if others else ""
    return f"reported: {row.name}, {row.source}, tasks: {SOURCE}{settings}"
