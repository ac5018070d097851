"""The row that every printed result of the paper has, and the names in it."""

import dataclasses

TITLES = {
    "imagenet2012": "ImageNet",
    "imagenet2012_real": "ImageNet ReaL",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "oxford_iiit_pet": "Oxford-IIIT Pets",
    "oxford_flowers102": "Oxford Flowers-102",
    "vtab": "VTAB (19 tasks)",
    "average": "Average",
    "exaflops": "exaFLOPs",
    "tpu_days": "TPUv3-core-days, thousands",
}
PRETRAINING = {
    "imagenet2012": "ImageNet",
    "imagenet21k": "ImageNet-21k",
    "jft300m": "JFT-300M",
}
# The builders of the models that this package has.
BUILDERS = {
    "ViT-B/32": "ViT_B32",
    "ViT-B/16": "ViT_B16",
    "ViT-L/32": "ViT_L32",
    "ViT-L/16": "ViT_L16",
    "ViT-H/14": "ViT_H14",
    # The widths of ViT-B/32, halved.
    "ViT-b/32": "ViT_S32",
    "R50x1": "BiT_R50x1",
    "R50x2": "BiT_R50x2",
    "R101x1": "BiT_R101x1",
    "R152x1": "BiT_R152x1",
    "R152x2": "BiT_R152x2",
    "R200x3": "BiT_R200x3",
    "R50x1+ViT-B/32": "R50_B32",
    "R50x1+ViT-B/16": "R50_B16",
    "R50x1+ViT-L/32": "R50_L32",
    "R50x1+ViT-L/16": "R50_L16",
    "BiT-L R152x4": "BiT_R152x4",
    "ResNet50": "BiT_R50x1",
    "ResNet152x2": "BiT_R152x2",
}


@dataclasses.dataclass(frozen=True)
class PaperResult:
    """One result that the ViT paper (arXiv 2010.11929) prints.

    Args:
        source: where it is printed, such as `"Table 2"` or `"Appendix D.9"`.
        model: name of the model in the paper.
        pretraining: name of the pre-training set, a key of `PRETRAINING`; `None` if none is printed
            with the result.
        dataset: name in `keras_vit.data.DATASETS`; `"vtab"` for the mean over its tasks,
            `"average"` for that over five datasets, `"objectnet"`; `"exaflops"` and `"tpu_days"`
            (in thousands) for the compute of the pre-training.
        value: the number. Accuracies are in percent, those of Table 8 from 0 to 1.
        std: standard deviation over runs, in percent, or `None`.
        setting: what else identifies the result in its table, such as `"7 epochs"`.
        decimals: number of decimals that the paper prints.

    Example:
    >>> from keras_vit.experiments.paper.accuracies import TABLE_2
    >>> TABLE_2[1].name, str(TABLE_2[1])
    ('ViT_L16/jft300m/imagenet2012', '87.76 ± 0.03')
    """

    source: str
    model: str
    pretraining: str | None
    dataset: str
    value: float
    std: float | None = None
    setting: str = ""
    decimals: int = 2

    def __str__(self):
        std = "" if self.std is None else f" ± {self.std:.{self.decimals}f}"
        return f"{self.value:,.{self.decimals}f}{std}"

    @property
    def builder(self):
        """Name of the model's builder, or `None` for a model that is not in this package."""
        return BUILDERS.get(self.model)

    @property
    def name(self):
        """Name of the row: builder, pre-training set, dataset and setting."""
        parts = (self.builder or self.model, self.pretraining, self.dataset, self.setting)
        return "/".join(part.replace(" ", "_") for part in parts if part)

    @property
    def title(self):
        """The model with its pre-training set, as a column of a table."""
        if self.pretraining is None:
            return self.model
        return f"{self.model}, {PRETRAINING[self.pretraining]}"
