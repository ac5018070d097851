"""The results in the ViT paper (arXiv 2010.11929), read from the CSV files in `paper/`."""

import csv
import dataclasses
import decimal
import functools
import pathlib


@functools.cache
def paper_rows(name):
    """Return the rows of a file in `paper/`, such as `"Table 8"`, as dictionaries of strings."""
    path = pathlib.Path(__file__).with_name("paper") / f"{name.lower().replace(' ', '_')}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


# From names of datasets and pre-training sets to their titles in tables.
TITLES = {row["name"]: row["title"] for row in paper_rows("names")}
# From names of models in the paper to names of builders in this package.
BUILDERS = {row["model"]: row["builder"] for row in paper_rows("models")}


@dataclasses.dataclass(frozen=True)
class PaperResult:
    """One number that the paper reports.

    Args:
        source: place in the paper, such as `"Table 2"` or `"Appendix D.9"`.
        model: name of the model in the paper.
        dataset: name in `keras_vit.data.DATASETS`; or `"objectnet"`, `"vtab"` (mean over its
            tasks), `"average"` (mean over five datasets); or, for the compute of the pre-training,
            `"exaflops"` and `"tpu_days"` (in thousands).
        printed: the number as it is printed. Accuracies are in percent, in Table 8 from 0 to 1.
        pretraining: name of the pre-training set; empty if the paper does not print it.
        printed_std: standard deviation over runs, in percent; empty if it is not printed.
        setting: further words that identify the result in its table, such as `"7 epochs"`.
        study: name of the same setting in a study of this package, or empty.
        image_size: side of the evaluated images in pixels; empty if it is not printed.

    Example:
    >>> result = paper_results("Table 2")[1]
    >>> result.name, str(result)
    ('ViT_L16/jft300m/imagenet2012', '87.76 ± 0.03')
    """

    source: str
    model: str
    dataset: str
    printed: str
    pretraining: str = ""
    printed_std: str = ""
    setting: str = ""
    study: str = ""
    image_size: str = ""

    def __str__(self):
        std = f" ± {self.printed_std}" if self.printed_std else ""
        return f"{decimal.Decimal(self.printed):,}{std}"

    @property
    def value(self):
        """The result as a float."""
        return float(self.printed)

    @property
    def std(self):
        """The standard deviation as a float, or `None`."""
        return float(self.printed_std) if self.printed_std else None

    @property
    def builder(self):
        """The name of the model's builder, or `None` for a model that is not in this package."""
        return BUILDERS.get(self.model)

    @property
    def name(self):
        """The name of the result: builder, pre-training set, dataset and setting."""
        parts = (self.builder or self.model, self.pretraining, self.dataset, self.setting)
        return "/".join(part.replace(" ", "_") for part in parts if part)

    @property
    def title(self):
        """The model and its pre-training set, as a title in a table."""
        return f"{self.model}, {TITLES[self.pretraining]}" if self.pretraining else self.model


@functools.cache
def paper_results(name):
    """Return the results in `"Table 2"`, in `"Table 5"` to `"Table 9"`, or in the `"text"`."""
    return tuple(PaperResult(**row) for row in paper_rows(name))
