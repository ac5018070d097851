"""Table 8 of the ViT paper (arXiv 2010.11929): position embeddings of ViT-B/16.

The accuracy is 5-shot linear on ImageNet, from 0 to 1. An embedding is added before the first block
(the default), before every block, or before every block with the same weights.
"""

from keras_vit.experiments.paper.result import PaperResult

PLACES = ("Default/Stem", "Every Layer", "Every Layer-Shared")
# Without and with relative embeddings, the place is that of the default alone.
_ACCURACIES = (
    ("No Pos. Emb.", 0.61382),
    ("1-D Pos. Emb.", 0.64206, 0.63964, 0.64292),
    ("2-D Pos. Emb.", 0.64001, 0.64046, 0.64022),
    ("Rel. Pos. Emb.", 0.64032),
)
# The kinds of the study of position embeddings that are in the table.
STUDIED = {
    "none": "No Pos. Emb., Default/Stem",
    "1-D, learned": "1-D Pos. Emb., Default/Stem",
    "1-D, every layer": "1-D Pos. Emb., Every Layer",
    "1-D, shared": "1-D Pos. Emb., Every Layer-Shared",
    "2-D, learned": "2-D Pos. Emb., Default/Stem",
    "2-D, every layer": "2-D Pos. Emb., Every Layer",
    "2-D, shared": "2-D Pos. Emb., Every Layer-Shared",
    "relative": "Rel. Pos. Emb., Default/Stem",
}


def _table_8():
    for embedding, *values in _ACCURACIES:
        for place, value in zip(PLACES, values, strict=False):
            setting = f"{embedding}, {place}"
            options = {"setting": setting, "decimals": 5}
            yield PaperResult("Table 8", "ViT-B/16", None, "imagenet2012", value, **options)


TABLE_8 = tuple(_table_8())
