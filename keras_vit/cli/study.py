"""`keras-vit study`."""

import dataclasses
import pathlib
import re
from typing import Annotated, Literal

import tyro

from keras_vit.cli.train import AnyRecipe

TITLES = {
    "scaling": "Accuracy against the compute of the training",
    "positions": "Position embeddings",
    "poolings": "What the head sees",
}


@dataclasses.dataclass
class Study:
    """Train the same with one thing changed, over several seeds, and draw what it comes to.

    `scaling` compares models, `positions` kinds of position embeddings, `poolings` the class token
    with means and attention. The directory gets `study.csv`, `study.png` and a run for each; a
    study that was stopped goes on. Example: keras-vit study positions digits_pretrain
    --models ViT_Ti16 --data digits --workdir runs/positions --image-size 64 --epochs 5
    """

    study: Annotated[Literal["scaling", "positions", "poolings"], tyro.conf.Positional]
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
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Trains, prints the table and draws the figure."""
        from keras_vit.evaluation.studies import STUDIES, by_setting, run_study
        from keras_vit.inspection.figures import check_matplotlib
        from keras_vit.inspection.study_figures import draw_scaling, draw_study

        check_matplotlib()
        settings = STUDIES[self.study](self.models)
        self._check(settings)
        self.workdir = self.workdir.expanduser().resolve()
        seeds = range(self.recipe.seed, self.recipe.seed + self.seeds)
        # Another seed is another row.
        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        facts = {"study": self.study, "data": self.data, "classes": self.classes, **recipe}
        rows = run_study(settings, seeds, self._measure, self.workdir, facts)
        accuracies = by_setting(rows, "accuracy")
        exaflops = {name: found[0] for name, found in by_setting(rows, "exaflops").items()}
        picture = self.workdir / "study.png"
        if self.study == "scaling":
            draw_scaling(exaflops, accuracies, TITLES[self.study], picture)
        else:
            draw_study(accuracies, TITLES[self.study], picture)
        print_table(accuracies, exaflops)
        print(f"Table and figure: {self.workdir / 'study.csv'}, {picture}")

    def _check(self, settings):
        """What would otherwise be found after the first runs."""
        from keras_vit.models import Variant, find_variant

        if self.seeds < 1 or not self.recipe.is_of_classes:
            raise ValueError(
                "`--seeds` must be positive, and the recipe one that trains on classes. "
                f"Received: seeds={self.seeds}, loss={self.recipe.loss!r}"
            )
        for setting in settings:
            is_resnet = not isinstance(find_variant(setting.model), Variant)
            if is_resnet and setting.changes:
                raise ValueError(
                    f"`--models` must have patches for the study {self.study!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            self._recipe_of(setting, self.recipe.seed)

    def _recipe_of(self, setting, seed):
        return dataclasses.replace(self.recipe, **setting.changes, seed=seed)

    def _measure(self, setting, seed):
        """The compute of a run, and its accuracy on the test split."""
        from keras_vit.data.datasets import load
        from keras_vit.evaluation.classification import evaluate
        from keras_vit.evaluation.compute import count_training_exaflops
        from keras_vit.models import find_variant
        from keras_vit.training.fit import fit
        from keras_vit.training.starting_model import make_model
        from keras_vit.training.training_data import load_training_data

        print(f"{setting.name}, seed {seed}")
        recipe = self._recipe_of(setting, seed)
        options = {"classes": self.classes, "data_dir": self.data_dir}
        data = load_training_data(recipe, self.data, **options)
        num_classes = len(data[0].class_names)
        model = make_model(recipe, setting.model, num_classes)
        name = re.sub(r"\W+", "_", f"{setting.name}, seed {seed}")
        facts = {"model": setting.model, "data": self.data, "classes": self.classes}
        fit(recipe, model, data, self.workdir / name, facts, resume=True)
        epochs, steps = recipe.epoch_lengths(data[0].num_examples)
        num_images = epochs * steps * recipe.batch_size
        size = recipe.image_size
        variant = find_variant(setting.model)
        exaflops = count_training_exaflops(
            variant, num_images, 1, num_classes, size, pooling=recipe.pooling
        )
        test = load(self.data, "test", size, recipe.batch_size, **options)
        return exaflops, evaluate(model, test)["accuracy"]


def print_table(accuracies, exaflops):
    """Mean and standard deviation (n - 1) of each setting."""
    import statistics

    from keras_vit.cli.tables import plain_table

    rows = []
    for name, found in accuracies.items():
        deviation = f"{100 * statistics.stdev(found):.2f}" if len(found) > 1 else "-"
        mean = f"{statistics.mean(found):.2%}"
        rows.append((name, f"{len(found)}", f"{exaflops[name]:.3g}", mean, deviation))
    print(plain_table(("setting", "seeds", "exaFLOPs", "test accuracy", "deviation"), rows))
