"""`keras-vit study`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from keras_vit.cli.train import AnyRecipe
from keras_vit.core.choices import absolute_name

TITLES = {
    "scaling": "Accuracy against the compute of the training",
    "positions": "Position embeddings",
    "poolings": "What the head sees",
    "data-size": "Accuracy against the number of training images",
}


@dataclasses.dataclass
class Study:
    """Train the same with one thing changed, over several seeds, and draw what it comes to.

    `scaling` compares models, `data-size` parts of the training images, `positions` kinds of
    position embeddings, `poolings` the class token with means and attention. The directory gets
    `study.csv`, `study.png` and a run for each; a study that was stopped goes on. Example:
    keras-vit study positions digits_pretrain --models ViT_Ti16 --data digits
    --workdir runs/positions --image-size 64 --epochs 5
    """

    study: Annotated[Literal["scaling", "data-size", "positions", "poolings"], tyro.conf.Positional]
    """What is changed."""
    recipe: AnyRecipe
    data: str
    """As in `keras-vit train`. Models train on the train split; the accuracy is that of the test
    split."""
    workdir: pathlib.Path
    """Directory for the table, the figure and the runs."""
    models: tuple[str, ...] = ("ViT_Ti16",)
    """Names of variants (see `keras-vit models`)."""
    seeds: int = 3
    """Runs of each setting; the recipe's seed is the first's."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    fractions: tuple[float, ...] | None = None
    """Of data-size: the shares of the training images, by default 0.03 0.1 0.3 1. Each is trained
    on for as many steps as all of them."""
    fewshot_data: str | None = None
    """Of data-size: the dataset of the few-shot accuracy. By default the one trained on, whose
    images and labels the model has seen."""
    fewshot_classes: tuple[str, ...] | None = None
    """Of data-size: classes to keep of `--fewshot-data`; all by default."""
    shots: int | None = None
    """Of data-size: labelled images of each class, by default 5."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Trains, prints the table and draws the figure."""
        from keras_vit.cli.study_runs import check_data, measure_best, measure_last
        from keras_vit.experiments.studies import run_study
        from keras_vit.inspection.figures.drawing import check_matplotlib

        check_matplotlib()
        self._fill_in()
        settings = self._settings()
        self._check(settings)
        check_data(self, settings)
        self.workdir = self.workdir.expanduser().resolve()
        measure = measure_best if self.study == "data-size" else measure_last
        rows = run_study(
            settings,
            range(self.recipe.seed, self.recipe.seed + self.seeds),
            lambda setting, seed: measure(self, setting, seed),
            self.workdir,
            self._facts(),
        )
        picture = self.workdir / "study.png"
        self._draw(settings, rows, picture)
        print_table(rows)
        print(f"Table and figure: {self.workdir / 'study.csv'}, {picture}")

    def _fill_in(self):
        """Checks what is of one study alone, and fills in what was not said."""
        own = ("fractions", "fewshot_data", "fewshot_classes", "shots")
        given = [name for name in own if getattr(self, name) is not None]
        if given and self.study != "data-size":
            raise ValueError(
                f"`--{given[0].replace('_', '-')}` is of the study `data-size` alone. "
                f"Received: the study {self.study!r}"
            )
        if self.fractions is None:
            self.fractions = (0.03, 0.1, 0.3, 1.0)
        if self.shots is None:
            self.shots = 5
        # From whatever directory it goes on.
        self.data = absolute_name(self.data)
        if self.fewshot_data is not None:
            self.fewshot_data = absolute_name(self.fewshot_data)

    def _settings(self):
        from keras_vit.experiments.studies import STUDIES, data_sizes

        if self.study == "data-size":
            return data_sizes(self.models, self.fractions)
        return STUDIES[self.study](self.models)

    def _facts(self):
        """What all rows have in common; another seed is another row."""
        from keras_vit.experiments.digests import data_digests

        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        facts = {"study": self.study, "data": self.data, "classes": self.classes, **recipe}
        if self.study == "data-size":
            names = ("fewshot_data", "fewshot_classes", "shots")
            facts.update({name: getattr(self, name) for name in names})
        facts |= data_digests(self.data, ("train", "validation", "test"), self.classes)
        if self.fewshot_data is not None:
            splits = ("train", "test")
            facts |= data_digests(self.fewshot_data, splits, self.fewshot_classes, "fewshot_")
        return facts

    def _check(self, settings):
        """What would otherwise be found after the first runs."""
        from keras_vit.evaluation.fewshot import check_settings
        from keras_vit.models import Variant, find_variant

        if self.seeds < 1 or not self.recipe.is_of_classes:
            raise ValueError(
                "`--seeds` must be positive, and the recipe one that trains on classes. "
                f"Received: seeds={self.seeds}, loss={self.recipe.loss!r}"
            )
        is_share = all(0 < fraction <= 1 for fraction in self.fractions)
        if (
            not settings
            or not is_share
            or len({setting.name for setting in settings}) < len(settings)
        ):
            raise ValueError(
                "`--models` and `--fractions` must be there, each once, the latter shares above 0 "
                f"and up to 1. Received: models={self.models}, fractions={self.fractions}"
            )
        if self.fewshot_classes and not self.fewshot_data:
            raise ValueError(
                "`--fewshot-classes` are of `--fewshot-data`. "
                f"Received: fewshot_classes={self.fewshot_classes}, fewshot_data=None"
            )
        check_settings((self.shots,), (0,), "least-squares", None)
        for setting in settings:
            is_resnet = not isinstance(find_variant(setting.model), Variant)
            if is_resnet and setting.changes:
                raise ValueError(
                    f"`--models` must have patches for the study {self.study!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            dataclasses.replace(self.recipe, **setting.changes)

    def _draw(self, settings, rows, picture):
        from keras_vit.experiments.studies import by_setting
        from keras_vit.inspection.figures.studies import draw_data_sizes, draw_scaling, draw_study

        title, accuracies = TITLES[self.study], by_setting(rows, "accuracy")
        if self.study == "scaling":
            exaflops = {name: found[0] for name, found in by_setting(rows, "exaflops").items()}
            draw_scaling(exaflops, accuracies, title, picture)
        elif self.study == "data-size":
            models = {setting.name: setting.model for setting in settings}
            shots = f"{self.shots}-shot accuracy (%)"
            panels = {shots: "fewshot", "Test accuracy (%)": "accuracy"}
            draw_data_sizes(
                [{**row, "model": models[row["setting"]]} for row in rows], panels, title, picture
            )
        else:
            draw_study(accuracies, title, picture)


def print_table(rows):
    """Means over the seeds of each setting, and of accuracies the standard deviation (n - 1)."""
    import statistics

    from keras_vit.cli.tables import plain_table
    from keras_vit.experiments.studies import by_setting

    def share(found):
        deviation = f" ± {100 * statistics.stdev(found):.2f}" if len(found) > 1 else ""
        return f"{100 * statistics.mean(found):.2f}{deviation} %"

    formats = {
        "images": ("images", lambda found: f"{statistics.mean(found):,.0f}"),
        "exaflops": ("exaFLOPs", lambda found: f"{found[0]:.3g}"),
        "fewshot": ("few-shot accuracy", share),
        "accuracy": ("test accuracy", share),
    }
    shown = {name: how for name, how in formats.items() if name in rows[0]}
    lines = []
    for name, accuracies in by_setting(rows, "accuracy").items():
        cells = [how(by_setting(rows, column)[name]) for column, (_, how) in shown.items()]
        lines.append((name, f"{len(accuracies)}", *cells))
    titles = [title for title, _ in shown.values()]
    print(plain_table(("setting", "seeds", *titles), lines))
