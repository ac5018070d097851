"""`keras-vit study paper`."""

import dataclasses
import pathlib

from keras_vit.cli.arguments import Table


@dataclasses.dataclass
class Paper(Table):
    """Print a table or figure of the ViT paper as rows, next to what is counted or measured here.

    Without options the tables and figures are listed.

    Example: keras-vit study paper --table 5 --measured runs/cifar10-seed-0 runs/cifar10-seed-1

    Args:
        table: number of a table, 1 to 9.
        figure: number of a figure, 2 to 5, instead of a table.
        measured: directories of your own runs (evaluated on the test split), of `keras-vit vtab` or
            of `keras-vit study`, to print next to what the paper reports. NAME=DIRECTORY names the
            row, such as ViT_L16/jft300m/cifar10=runs/cifar; by default it is found as in `keras-vit
            evaluate`.
        data_dir: directory of TensorFlow Datasets, to evaluate runs.
    """

    table: int | None = None
    figure: int | None = None
    measured: tuple[str, ...] = ()
    data_dir: pathlib.Path | None = None

    @property
    def needs_keras(self):
        """Whether runs are evaluated."""
        return bool(self.measured)

    def run(self):
        """Print the table."""
        from keras_vit.experiments.paper_results import paper_rows
        from keras_vit.experiments.paper_tables import CONTENTS, paper_table

        names = [f"Table {self.table}"] if self.table is not None else []
        names += [f"Figure {self.figure}"] if self.figure is not None else []
        if not names and not self.measured:
            statements = map(dict.values, paper_rows("statements"))
            for name, text in (*CONTENTS.items(), *statements):
                print(f"- {name}: {text}" if self.markdown else f"{name:<12}  {text}")
            return
        if len(names) != 1:
            raise ValueError(
                "One of `--table` and `--figure` must be given. "
                f"Received: table={self.table}, figure={self.figure}"
            )
        tables = [paper_table(*names)]
        if self.measured:
            from keras_vit.experiments.measured import measured_tables

            tables += measured_tables(*names, self.measured, self.data_dir)
        for shown in tables:
            print(shown.title)
            # Markdown needs an empty line between paragraphs.
            between = "\n" * self.markdown
            print(between, end="")
            self.print_table(shown.columns, shown.rows)
            for note in shown.notes:
                print(f"{between}{note}")
            print()
