"""`keras-vit train`."""

import dataclasses
import pathlib
import shlex
from typing import Literal

import tyro

from keras_vit.core.choices import BY_POSITION, DIVIDED, absolute_name
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
    fraction: float = 1.0
    """Share of the training images to train on. A smaller share is a part of a larger."""
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
    sweep_lr: bool = False
    """First train with each of `--learning-rates` on the training split alone, beside the workdir;
    then train on it and the held-out images with the rate that was best on these."""
    resume: bool = False
    """Go on where the same run in the directory was stopped, or begin it."""
    save_steps: int = 1000
    """Batches after which the state to resume from is saved, beside the ends of epochs."""
    keep: int = 2
    """How many states are kept."""
    strategy: str = "auto"
    """On what devices: `auto` (all accelerators there are), `none` (one); with TensorFlow
    `mirrored` (all GPUs), `tpu`; with JAX `data_parallel`, `model_parallel`."""
    model_shards: int | None = None
    """In how many parts `model_parallel` cuts a model; by default as many as there are devices."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Trains, and says where everything is."""
        from keras_vit.training.distribution import strategy

        self.workdir = self.workdir.expanduser().resolve()
        with strategy(self.strategy, self.model_shards).scope():
            history = self._sweep() if self.sweep_lr else self._train(self.recipe, self.workdir)
        self._draw()
        workdir = shlex.quote(str(self.workdir))
        print(f"{describe_best(history)}; models and settings in {workdir}")
        if self.recipe.is_of_classes:
            print(f"Next: keras-vit evaluate {workdir}")
        else:
            print(f"Next: keras-vit train finetune --model {workdir} ...")
        print(f"      tensorboard --logdir {workdir}")

    def _train(self, recipe, workdir, split="train", validation="validation", **facts):
        from keras_vit.training.fit import fit
        from keras_vit.training.starting_model import make_model
        from keras_vit.training.training_data import load_training_data

        name = self._find_data(workdir)
        data = load_training_data(
            recipe,
            name,
            self.classes,
            self.fraction,
            split=split,
            validation=validation,
            data_dir=self.data_dir,
            exclude=self.exclude or (),
            cache=self._cache_of(split),
            max_skipped=self.max_skipped,
        )
        self._report_files(name, data, split)
        model = make_model(recipe, self.model, len(data[0].class_names), self.dtype)
        facts = {
            "model": self.model,
            "data": absolute_name(self.data),
            "split": split,
            "classes": self.classes,
            "exclude": self.exclude and str(self.exclude),
            "dtype": self.dtype,
            **facts,
        }
        if self.fraction < 1:
            facts["fraction"] = self.fraction
        options = {"resume": self.resume, "save_steps": self.save_steps, "keep": self.keep}
        return fit(recipe, model, data, workdir, facts, exclude=self.exclude, **options)

    def _cache_of(self, split):
        """Return the cache for a split: the last run of a sweep needs its own file."""
        is_file = self.cache not in (None, "memory")
        return f"{self.cache}-{split}" if is_file and self.sweep_lr else self.cache

    def _find_data(self, workdir):
        """The name of the data, as the run that is begun or resumed divides them."""
        from keras_vit.training.runs.run import LAST_MODEL, read_run
        from keras_vit.training.runs.saved_models import data_of

        return data_of(read_run(workdir / LAST_MODEL) if self.resume else {}, self.data)

    def _report_files(self, name, data, split):
        """Say which files are left out, and warn of splits that mislead."""
        from keras_vit.cli.data import print_left_out
        from keras_vit.data.datasets import find_source
        from keras_vit.data.leaks import check_splits
        from keras_vit.training.distribution import is_first_process

        if name.removeprefix(BY_POSITION).partition(":")[0] not in DIVIDED:
            return
        if not is_first_process():
            return
        print_left_out(data[0])
        pairs = zip((split, "validation"), data, strict=True)
        loaded = {split: dataset for split, dataset in pairs if dataset is not None}
        sources = {split: dataset.source for split, dataset in loaded.items()}
        sources["test"] = find_source(name, "test", self.classes)
        check_splits(sources, {split: dataset.fingerprints for split, dataset in loaded.items()})

    def _sweep(self):
        from keras_vit.experiments.digests import file_digest
        from keras_vit.experiments.sweep import choose_learning_rate
        from keras_vit.training.runs.run import check_new, find_model

        check_new(self.workdir, self.resume)
        # All of its runs must start from the same weights, also those after a stop.
        digest = file_digest(find_model(self.model))
        beside = self.workdir.with_name(f"{self.workdir.name}-sweep")

        def train(recipe):
            print(f"Training with a learning rate of {recipe.learning_rate:g}")
            return self._train(recipe, beside / f"{recipe.learning_rate:g}", **digest)

        recipe, accuracies = choose_learning_rate(self.recipe, train)
        for rate, accuracy in accuracies.items():
            chosen = "  <- chosen" if rate == recipe.learning_rate else ""
            result = "diverged" if accuracy is None else f"validation accuracy {accuracy:.2%}"
            print(f"learning rate {rate:g}: {result}{chosen}")
        sweep = {f"{rate:g}": accuracy for rate, accuracy in accuracies.items()}
        everything = {"split": "train+validation", "validation": None}
        return self._train(recipe, self.workdir, **everything, **digest, sweep=sweep)

    def _draw(self):
        """A picture of what is predicted of masked patches, if they are."""
        import importlib.util

        from keras_vit.training.runs.run import LAST_MODEL, PREDICTOR_MODEL

        predictor = self.workdir / PREDICTOR_MODEL
        if not predictor.exists() or not importlib.util.find_spec("matplotlib"):
            return
        from keras_vit.data import load, mask_patches
        from keras_vit.inspection.figures.masked_patches import draw_masked_patches
        from keras_vit.models.files import load_model
        from keras_vit.models.surgery import token_stride

        model = load_model(self.workdir / LAST_MODEL)
        options = {"classes": self.classes, "data_dir": self.data_dir}
        images = load(self.data, "validation", model.input_shape[1:3], batch_size=8, **options)
        masked = mask_patches(images, token_stride(model), self.recipe.loss)
        picture = self.workdir / "masked_patches.png"
        draw_masked_patches(load_model(predictor), next(masked.as_numpy_iterator()), picture)
        print(f"What it predicts of masked patches: {picture}")


def describe_best(history):
    """The best of the epochs, by what was measured."""
    for metric, best in (("val_accuracy", max), ("val_loss", min)):
        values = [metrics[metric] for metrics in history if metric in metrics]
        if values:
            name = metric.replace("val_", "validation ")
            return f"Best {name} {best(values):{'.2%' if metric == 'val_accuracy' else '.4f'}}"
    return f"Trained for {len(history)} epochs"
