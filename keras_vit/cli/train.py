"""`keras-vit train`."""

import dataclasses
import pathlib
from typing import Literal

import tyro

from keras_vit.training.recipes import RECIPES, SOURCES

DESCRIPTIONS = {
    name: f"{source}." + (f" Reported: {accuracy}." if accuracy else "")
    for name, (source, accuracy) in SOURCES.items()
}
AnyRecipe = tyro.extras.subcommand_type_from_defaults(RECIPES, DESCRIPTIONS)


@dataclasses.dataclass
class Train:
    """Train a model by a recipe; `keras-vit train RECIPE --help` shows its settings.

    Example: keras-vit train finetune --model ViT_Ti16 --data folder:photos --workdir runs/photos
    --image-size 64 --batch-size 16 --steps 100 --warmup-steps 10
    """

    recipe: AnyRecipe
    model: str
    """Name of a variant (see `keras-vit models`), a .keras file, or a run's directory."""
    data: str
    """`digits`, `folder:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN`, or one of the paper's
    datasets (`cifar10`, `vtab/dtd`, ...; see `keras-vit data`)."""
    workdir: pathlib.Path
    """New directory for the run: settings, curves, models."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    data_dir: pathlib.Path | None = None
    """Where TensorFlow Datasets keeps its data."""
    exclude: pathlib.Path | None = None
    """File with ids of examples to leave out, as `keras-vit deduplicate` writes."""
    cache: str | None = None
    """`memory`, or the path of a new file, to keep encoded training images after one epoch."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] | None = None
    """Dtype policy of a model that is built; float32 by default. A loaded model has its own."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Trains, and says where everything is."""
        from keras_vit.training.fit import fit, load_training_data, make_model

        train, validation = load_training_data(
            self.recipe,
            self.data,
            self.classes,
            data_dir=self.data_dir,
            exclude=self.exclude or (),
            cache=self.cache,
            max_skipped=self.max_skipped,
        )
        model = make_model(self.recipe, self.model, len(train.class_names), self.dtype)
        facts = {"model": self.model, "data": findable(self.data), "classes": self.classes}
        history = fit(self.recipe, model, (train, validation), self.workdir, facts)
        best = max(history.history["val_accuracy"])
        print(f"Best validation accuracy {best:.2%}; models and settings in {self.workdir}")
        print(f"Next: keras-vit evaluate {self.workdir}")
        print(f"      tensorboard --logdir {self.workdir}")


def findable(data):
    """The name of a dataset, such that it is found from any working directory."""
    kind, _, path = data.partition(":")
    if kind not in ("folder", "tfrecord"):
        return data
    return f"{kind}:{pathlib.Path(path).expanduser().resolve()}"
