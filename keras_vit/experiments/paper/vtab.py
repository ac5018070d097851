"""Table 9 of the ViT paper (arXiv 2010.11929): VTAB-1k by task, and the groups of its tasks."""

import numpy as np

from keras_vit.data.sources.paper import VTAB_NATURAL, VTAB_SPECIALIZED, VTAB_STRUCTURED
from keras_vit.experiments.paper.result import PaperResult

GROUPS = {
    "natural": tuple(row.name for row in VTAB_NATURAL),
    "specialized": tuple(row.name for row in VTAB_SPECIALIZED),
    "structured": tuple(row.name for row in VTAB_STRUCTURED),
}
TASKS = sum(GROUPS.values(), ())
# Name of the mean over all tasks.
ALL = "VTAB-1k"

# In the order of `TASKS`, then the mean.
_ACCURACIES = (
    (
        *("ViT-H/14", "jft300m"),
        *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9),
        *(83.3, 96.7, 91.4, 76.6),
        *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
        77.6,
    ),
    (
        *("ViT-L/16", "jft300m"),
        *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4),
        *(83.6, 96.5, 89.7, 77.1),
        *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
        76.3,
    ),
    (
        *("ViT-L/16", "imagenet21k"),
        *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9),
        *(82.5, 95.6, 85.2, 75.3),
        *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
        72.7,
    ),
)


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


def _table_9():
    for model, pretraining, *values in _ACCURACIES:
        for dataset, value in zip((*TASKS, "vtab"), values, strict=True):
            yield PaperResult("Table 9", model, pretraining, dataset, value, decimals=1)


TABLE_9 = tuple(_table_9())
