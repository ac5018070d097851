"""The list of the paper's tables and figures, and their tables by name."""

import dataclasses
from collections.abc import Callable

from keras_vit.core.arguments import check_choice
from keras_vit.experiments.paper import figures, settings_tables, tables
from keras_vit.experiments.paper.layout import PaperTable


@dataclasses.dataclass(frozen=True)
class Content:
    """A table or figure of the paper.

    Args:
        title: what it shows.
        function: function from a title to its `PaperTable`.
    """

    title: str
    function: Callable[[str], PaperTable]


CONTENTS = {
    "Table 1": Content("sizes of the models", settings_tables.table_1),
    "Table 2": Content("the largest models, fine-tuned", tables.table_2),
    "Table 3": Content("settings of pre-training", settings_tables.table_3),
    "Table 4": Content("settings of fine-tuning", settings_tables.table_4),
    "Table 5": Content("accuracy by pre-training set", tables.table_5),
    "Table 6": Content("accuracy and compute of 18 pre-training runs", tables.table_6),
    "Table 7": Content("Fine-tuned ResNets, pre-trained with Adam and with SGD", tables.table_7),
    "Table 8": Content("position embeddings", tables.table_8),
    "Table 9": Content("VTAB-1k by task", tables.table_9),
    "Figure 2": Content("VTAB-1k by group", figures.figure_2),
    "Figure 3": Content("ImageNet by pre-training set", figures.figure_3),
    "Figure 4": Content("few-shot accuracy by the number of images", figures.figure_4),
    "Figure 5": Content("accuracy by the compute of pre-training", figures.figure_5),
}


def paper_table(name: str) -> PaperTable:
    """Return a table or figure of the paper as a table of strings.

    Args:
        name: `"Table 1"` to `"Table 9"`, or `"Figure 2"` to `"Figure 5"`.

    Returns:
        A `PaperTable`: `title`, `columns`, `rows` and `notes`.

    Raises:
        ValueError: if there is none of that name.

    Reference:
        The ViT paper (arXiv 2010.11929).

    Example:
    >>> paper_table("Figure 3").rows[0]
    ('ViT-B/16', '77.91', '83.97', '84.15')
    """
    check_choice("name", name, tuple(CONTENTS))
    content = CONTENTS[name]
    return content.function(f"{name} of the ViT paper (arXiv 2010.11929): {content.title}")
