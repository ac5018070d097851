"""`keras-vit train`."""

import dataclasses
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.training.recipes import RECIPES, ROWS

DESCRIPTIONS = {
    name: f"{row.source}." + (f" Reported: {row.reported}." if row.reported else "")
    for name, row in ROWS.items()
}


@dataclasses.dataclass
class Auto:
    """Settings for the data, the model and this machine; they are logged, with an estimate of the
    time, and printed as a command that repeats the run.
    """

    minutes: float | None = None
    """Greatest time of the training; by default 60 on a CPU, and none on an accelerator."""
    seed: int = 0
    """Seed of weights, dropout, shuffling and augmentation."""


AnyRecipe = Annotated[
    Auto, tyro.conf.subcommand("auto")
] | tyro.extras.subcommand_type_from_defaults(RECIPES, DESCRIPTIONS)
_FEWSHOT = ("fewshot_every", "fewshot_data", "fewshot_shots", "fewshot_seeds", "fewshot_classes")
# Fields of the command that are not arguments of `train`.
_NOT_ARGUMENTS = ("sweep_lr", "debug", *_FEWSHOT)


@dataclasses.dataclass
class Train:
    """Train a model by a recipe; `keras-vit train RECIPE --help` shows its settings.

    Example: keras-vit train auto --model ViT_B16/augreg --data folder:photos --workdir runs/photos
    """

    recipe: AnyRecipe
    model: str
    """Name of a variant (see `keras-vit models`), also with other sizes, as in
    'ViT_Ti16(patch_size=4, depth=6)'; a .keras file, a run's directory, or a checkpoint as in
    `keras-vit convert`."""
    data: str
    """`digits`, `folder:PATH`, `csv:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN`,
    `tfrecord-lists:PATTERN`, or one of the paper's datasets (`cifar10`; see `keras-vit data`)."""
    workdir: pathlib.Path
    """New directory for the run: settings, curves, models."""
    classes: tuple[str, ...] | None = None
    """Classes to keep; all by default."""
    fraction: float = 1.0
    """Share of the training images to train on. A smaller share is part of each larger one."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    exclude: pathlib.Path | None = None
    """File with ids of examples to leave out, as `keras-vit deduplicate` writes it."""
    cache: str | None = None
    """`memory`, or the path of a file, to keep encoded training images from the first epoch on."""
    max_skipped: float = 0.1
    """Greatest share of images that may be skipped because they cannot be decoded."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] | None = None
    """Dtype policy of a new model; float32 by default. A .keras file has its own."""
    teacher: str | None = None
    """A trained model of the same classes, a run's directory, a .keras file or a checkpoint: the
    model learns from it as `--distillation`, `--temperature` and `--label-weight` say."""
    fewshot_every: int | None = None
    """Measure the few-shot accuracy of the model's features after every so many steps, and at the
    end, as `keras-vit fewshot` does; written to metrics.jsonl and for TensorBoard."""
    fewshot_data: str | None = None
    """Dataset of `--fewshot-every`, as in `--data`. Images of its train split are learned from,
    those of its test split are classified."""
    fewshot_shots: tuple[int, ...] = (5,)
    """Images per class to learn from."""
    fewshot_seeds: int = 3
    """Number of random choices of these images, with the seeds 0, 1, 2, ..."""
    fewshot_classes: tuple[str, ...] | None = None
    """Classes of `--fewshot-data` to keep; all by default."""
    sweep_lr: bool = False
    """First train with each of `--learning-rates`, in a directory next to the workdir. Then train
    on the training and validation splits with the rate that is best on the validation split. With
    `auto` the first runs are short, and the last one trains on the training split alone."""
    resume: bool = False
    """Resume the same run in the directory; if there is none, begin it."""
    save_steps: int = 1000
    """Number of batches between two saved states; a state is also saved after each epoch."""
    keep: int = 2
    """Number of states to keep."""
    strategy: str = "auto"
    """Devices: `auto` (all accelerators), `none` (one device); with TensorFlow `mirrored` (all
    GPUs), `tpu`; with JAX `data_parallel`, `model_parallel`."""
    model_shards: int | None = None
    """Number of parts into which `model_parallel` divides a model; one per device by default."""

    def run(self):
        """Train, and print where the results are."""
        from keras_vit.training.job import train

        self.workdir = self.workdir.expanduser().resolve()
        callbacks = self._callbacks()
        is_auto = isinstance(self.recipe, Auto)
        if is_auto:
            self.recipe = self._choose(self.recipe)
        names = [field.name for field in dataclasses.fields(self)]
        options = {name: getattr(self, name) for name in names if name not in _NOT_ARGUMENTS}
        options["callbacks"] = callbacks
        run = self._sweep(options) if self.sweep_lr and not is_auto else train(**options)
        # The last run of a sweep has no images to validate on.
        if not (self.sweep_lr and not is_auto and self.recipe.is_of_classes):
            self._draw()
        workdir = shlex.quote(str(self.workdir))
        print(
            f"{describe_best(run.history, self.recipe.monitor)}; models and settings in {workdir}"
        )
        for callback in callbacks:
            print(describe_fewshot(callback.rows[-1]))
        if self.recipe.is_of_classes:
            print(f"Next: keras-vit evaluate {workdir}")
        else:
            print(f"Next: keras-vit train finetune --model {workdir} ...")
        print(f"      tensorboard --logdir {workdir}")

    def _callbacks(self):
        """Return the callbacks that measure the few-shot accuracy; the data are checked."""
        if (self.fewshot_every is None) != (self.fewshot_data is None):
            raise ValueError(
                "`--fewshot-every` and `--fewshot-data` must be given together. Received: "
                f"fewshot_every={self.fewshot_every}, fewshot_data={self.fewshot_data!r}"
            )
        if self.fewshot_every is None:
            return ()
        from keras_vit.evaluation import FewshotAccuracy
        from keras_vit.training.callbacks import MeasureRegularly

        fewshot = FewshotAccuracy(
            self.fewshot_data,
            self.fewshot_shots,
            range(self.fewshot_seeds),
            classes=self.fewshot_classes,
            data_dir=self.data_dir,
            max_skipped=self.max_skipped,
        )
        return (MeasureRegularly(self.fewshot_every, fewshot),)

    def _choose(self, auto):
        """Return the recipe of `auto`, or that of the run to be resumed."""
        from keras_vit.checkpoints.trained.runs import LAST_MODEL, read_run
        from keras_vit.experiments.sweep import sweep_shortly
        from keras_vit.training.auto import auto_recipe
        from keras_vit.training.recipes import Recipe
        from keras_vit.training.runs.run import check_new

        check_new(self.workdir, self.resume)
        recorded = read_run(self.workdir / LAST_MODEL).get("recipe") if self.resume else None
        if recorded:
            lists = {k: tuple(v) for k, v in recorded.items() if isinstance(v, list)}
            return Recipe(**{**recorded, **lists})
        left_out = ("sweep_lr", "debug", "recipe", "workdir", "resume")
        fields = [field for field in dataclasses.fields(self) if field.name not in left_out]
        options = {field.name: getattr(self, field.name) for field in fields}
        known = {name: options[name] for name in ("classes", "data_dir", "exclude")}
        known |= {"minutes": auto.minutes, "seed": auto.seed, "may_freeze": self.teacher is None}
        recipe = auto_recipe(self.data, self.model, **known)
        if self.sweep_lr:
            arguments = {k: v for k, v in options.items() if k not in _FEWSHOT}
            recipe = sweep_shortly(recipe, workdir=self.workdir, **arguments)
        given = {f.name: options[f.name] for f in fields if options[f.name] != f.default}
        base = "finetune" if recipe.optimizer == "sgd" else "pretrain"
        again = self.workdir.with_name(f"{self.workdir.name}-again")
        print(f"The same again: {train_command(base, recipe, {**given, 'workdir': again})}")
        return recipe

    def _sweep(self, options):
        from keras_vit.experiments.sweep import sweep

        run, accuracies = sweep(**options)
        has_thresholds = getattr(run.model, "thresholds", None) is not None
        measure = "mean average precision" if has_thresholds else "accuracy"
        for rate, accuracy in accuracies.items():
            chosen = "  <- chosen" if rate == run.recipe.learning_rate else ""
            result = "diverged" if accuracy is None else f"validation {measure} {accuracy:.2%}"
            print(f"learning rate {rate:g}: {result}{chosen}")
        return run

    def _draw(self):
        """Draw what the best model confuses, or the predictions of masked patches."""
        if self.recipe.is_of_classes:
            from keras_vit.experiments.run_figures import draw_run

            names = ("classes", "data_dir", "exclude", "max_skipped")
            options = {name: getattr(self, name) for name in names}
            for path in draw_run(self.workdir, self.data, **options):
                print(f"Figure: {path}")
            return
        import importlib.util

        from keras_vit.checkpoints.trained.runs import LAST_MODEL, PREDICTOR_MODEL

        predictor = self.workdir / PREDICTOR_MODEL
        if not predictor.exists() or not importlib.util.find_spec("matplotlib"):
            return
        from keras_vit.data import load, mask_patches
        from keras_vit.inspection.figures.masked_patches import draw_masked_patches
        from keras_vit.models.files import load_model
        from keras_vit.models.parts import token_stride

        model = load_model(self.workdir / LAST_MODEL)
        options = {"classes": self.classes, "data_dir": self.data_dir}
        images = load(self.data, "validation", model.input_shape[1:3], batch_size=8, **options)
        masked = mask_patches(images, token_stride(model), self.recipe.loss)
        picture = self.workdir / "masked_patches.png"
        draw_masked_patches(load_model(predictor), next(masked.as_numpy_iterator()), picture)
        print(f"What it predicts of masked patches: {picture}")


def train_command(base, recipe, options):
    """Return the command of a recipe, by the settings that differ from those of the row `base`.

    Options that are `None` are left out; words are quoted for a shell.
    """
    before = dataclasses.asdict(RECIPES[base])
    settings = {k: v for k, v in dataclasses.asdict(recipe).items() if v != before[k]}
    settings |= {k: v for k, v in options.items() if v is not None}
    words = ["keras-vit", "train", base]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, (tuple, list)) else [value]
            words += [f"--{flag}", *map(str, values)]
    return shlex.join(words)


def describe_fewshot(row):
    """Describe the few-shot accuracies of a measurement."""
    shown = []
    for name, mean in row.items():
        if name == "step" or name.endswith("_std"):
            continue
        spread = row.get(f"{name}_std")
        shots = name.removeprefix("fewshot_").removesuffix("shot")
        deviation = "" if spread is None else f" ± {spread:.2%}"
        shown.append(f"{shots}-shot accuracy {mean:.2%}{deviation}")
    return f"After {row['step']} steps: {', '.join(shown)}"


def describe_best(history, monitor=None):
    """Describe the best epoch by the metric that selects it."""
    for metric in (monitor, "val_mean_average_precision", "val_accuracy", "val_loss"):
        values = [metrics[metric] for metrics in history if metric in metrics]
        if values:
            name = metric.replace("val_", "validation ").replace("_", " ")
            best = min(values) if "loss" in metric else max(values)
            return f"Best {name} {best:{'.2%' if 'accuracy' in metric else '.4f'}}"
    return f"Trained for {len(history)} epochs"
