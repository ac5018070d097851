"""`keras-vit train` and `keras-vit resume`: train models, and resume stopped runs."""

import dataclasses
import pathlib
import shlex
from typing import Annotated

import tyro

from keras_vit.cli.command import Command, Policy
from keras_vit.core.arguments import SEGMENTATION
from keras_vit.training.recipe import RECIPES, ROWS


@dataclasses.dataclass
class Auto:
    """Choose settings for the data, the model and this machine, and log them with a time estimate.

    Args:
        minutes: time limit of the training; by default 60 on a CPU, none on an accelerator.
        seed: seed of weights, dropout, shuffling and augmentation.
        image_size: side of the images in pixels; by default it is chosen for the images and model.
        upright: turn photographs upright by their EXIF orientation.
    """

    minutes: float | None = None
    seed: int = 0
    image_size: int | None = None
    upright: bool = False


NamedRecipe = tyro.extras.subcommand_type_from_defaults(
    RECIPES,
    {
        name: f"{row.source}." + (f" Reported: {row.reported}." if row.reported else "")
        for name, row in ROWS.items()
    },
)
AnyRecipe = Annotated[Auto, tyro.conf.subcommand("auto")] | NamedRecipe
_FEWSHOT = ("fewshot_every", "fewshot_data", "fewshot_shots", "fewshot_seeds", "fewshot_classes")
# Options of the command that are not arguments of `train`.
_NOT_ARGUMENTS = ("sweep_lr", "seeds", "debug", *_FEWSHOT)


@dataclasses.dataclass
class Train(Command):
    """Train a model by a recipe; `keras-vit train RECIPE --help` shows the recipe's settings.

    Example: keras-vit train auto --model ViT_B16/imagenet21k --data folder:pets --workdir runs/pets

    Args:
        recipe: `auto`, or the name of a recipe; further flags change its settings.
        model: name of a variant (see `keras-vit models`), optionally with other sizes, as
            in 'ViT_Ti16(patch_size=4, depth=6)'; a .keras file, a run's directory, or a checkpoint
            as in `keras-vit convert`.
        data: `digits`, `folder:PATH`, `csv:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN`,
            multi-label `tfrecord-lists:PATTERN`, `parquet:PATTERN`, `webdataset:PATTERN`,
            `hf:NAME[:CONFIG]`, `masks:DIR` (images and their masks), or one of the paper's
            datasets (`cifar10`; see `keras-vit data`).
        workdir: new directory for the run: settings, curves, models.
        classes: classes to keep; all by default.
        fraction: share of the training images to train on. A larger share includes all images of
            a smaller share.
        data_dir: directory of TensorFlow Datasets.
        exclude: file with ids of examples to leave out, as `keras-vit deduplicate` writes it.
        cache: keep encoded training images after the first epoch, in `memory` or in a file at this
            path.
        max_skipped: greatest share of images that may be skipped because they cannot be decoded.
        dtype: dtype policy of a new model; float32 by default. A .keras file contains a policy.
        teacher: A trained model with the same classes, to distill: a run's directory, a .keras file
            or a checkpoint. See `--distillation`, `--temperature` and `--label-weight`.
        keep_head: keep the head of a trained model, to train it further. The model must have the
            classes of the dataset, in the same order. By default the model gets a new head.
        fewshot_every: measure the few-shot accuracy of the model's features, as `keras-vit fewshot`
            does, at the end and at intervals of this number of steps. The accuracy is written to
            metrics.jsonl and to the logs of TensorBoard.
        fewshot_data: dataset for `--fewshot-every`, as in `--data`: classifiers are fitted to the
            train split and measured on the test split.
        fewshot_shots: numbers of images per class to learn from.
        fewshot_seeds: number of random choices of these images, with the seeds 0, 1, 2, ...
        fewshot_classes: classes of `--fewshot-data` to keep; all by default.
        sweep_lr: first train with each of `--learning-rates`, in a directory next to the workdir.
            Then train on the training and validation splits with the rate that is best on the
            validation split. With `auto` the first runs are short, and the last run trains on the
            training split only.
        seeds: number of models to train, with the recipe's seed and the seeds after it, in the
            directories `seed-0`, `seed-1`, ... of the workdir. Mean and standard deviation are
            printed.
        resume: resume the run in `workdir`, or begin it if there is none.
        save_steps: number of batches between saved states; a state is also saved after each epoch.
        keep: number of saved states to keep.
        strategy: devices: `auto` (all accelerators), `none` (one device); with
            TensorFlow `mirrored` (all GPUs), `tpu`; with JAX `data_parallel`, `model_parallel`.
        model_shards: number of parts into which `model_parallel` splits the model; by default one
            per device.
    """

    recipe: AnyRecipe
    model: str
    data: str
    workdir: pathlib.Path
    classes: tuple[str, ...] | None = None
    fraction: float = 1.0
    data_dir: pathlib.Path | None = None
    exclude: pathlib.Path | None = None
    cache: str | None = None
    max_skipped: float = 0.1
    dtype: Policy | None = None
    teacher: str | None = None
    keep_head: bool = False
    fewshot_every: int | None = None
    fewshot_data: str | None = None
    fewshot_shots: tuple[int, ...] = (5,)
    fewshot_seeds: int = 3
    fewshot_classes: tuple[str, ...] | None = None
    sweep_lr: bool = False
    seeds: int | None = None
    resume: bool = False
    save_steps: int = 1000
    keep: int = 2
    strategy: str = "auto"
    model_shards: int | None = None

    def run(self):
        """Train, and print the paths of the results."""
        from keras_vit.experiments.sweep import train_seeds
        from keras_vit.training.trainer import train

        self.workdir = self.workdir.expanduser().resolve()
        callbacks = self._callbacks()
        # With `auto`, `_choose` runs the sweep.
        is_sweep = self.sweep_lr and not isinstance(self.recipe, Auto)
        if isinstance(self.recipe, Auto):
            self.recipe = self._choose(self.recipe)
        options = {n: value for n, value in vars(self).items() if n not in _NOT_ARGUMENTS}
        options["callbacks"] = callbacks
        train = _sweep if is_sweep else train

        def show(run):
            # The last run of a sweep trains on all images, so no images are left for the figures.
            show_run(run, callbacks, None if is_sweep and self.recipe.for_classifier else self.data)

        if self.seeds is None:
            show(train(**options))
        else:
            results = train_seeds(**options, seeds=self.seeds, train=train, on_run=show)
            print(describe_seeds(results))
        workdir = shlex.quote(str(self.workdir))
        print(f"Next: tensorboard --logdir {workdir}")
        if self.recipe.has_head or self.recipe.loss == SEGMENTATION:
            print(f"      keras-vit evaluate {workdir}")

    def _callbacks(self):
        """Return the callbacks that measure the few-shot accuracy, after checking their data."""
        from keras_vit.evaluation import FewshotAccuracy
        from keras_vit.training.callbacks import MeasureRegularly

        if (self.fewshot_every is None) != (self.fewshot_data is None):
            raise ValueError(
                "`--fewshot-every` and `--fewshot-data` must be given together. Received: "
                f"fewshot_every={self.fewshot_every}, fewshot_data={self.fewshot_data!r}"
            )
        if self.fewshot_every is None:
            return ()
        fewshot = FewshotAccuracy(
            self.fewshot_data,
            self.fewshot_shots,
            range(self.fewshot_seeds),
            classes=self.fewshot_classes,
            data_dir=self.data_dir,
            max_skipped=self.max_skipped,
            upright=self.recipe.upright,
        )
        return (MeasureRegularly(self.fewshot_every, fewshot),)

    def _choose(self, auto):
        """Return the recipe that `auto` chooses, or the recipe of the run to resume."""
        from keras_vit.checkpoints.run_files import LAST_MODEL, RUN_FILE, read_run
        from keras_vit.core.run_dir import RunDir
        from keras_vit.experiments.sweep import sweep_shortly
        from keras_vit.training.auto import auto_recipe
        from keras_vit.training.recipe import find_recipe

        first = self.workdir if self.seeds is None else self.workdir / f"seed-{auto.seed}"
        # Check the directory before training steps are timed.
        RunDir(first, {}, self.resume, file=RUN_FILE).check()
        recorded = read_run(first / LAST_MODEL).get("recipe") if self.resume else None
        if recorded:
            # `train` refuses settings that differ from the recorded ones.
            changed = {n: value for n, value in vars(auto).items() if value != getattr(Auto, n)}
            changed.pop("minutes", None)
            return dataclasses.replace(find_recipe(recorded), **changed)
        options = {name: getattr(self, name) for name in ("classes", "data_dir", "exclude")}
        # Freezing is for a new head only: a kept head is already trained.
        may_freeze = self.teacher is None and not self.keep_head
        recipe = auto_recipe(self.data, self.model, may_freeze=may_freeze, **options, **vars(auto))
        if self.sweep_lr:
            excluded = (*_NOT_ARGUMENTS, "recipe", "resume")
            arguments = {n: value for n, value in vars(self).items() if n not in excluded}
            recipe = sweep_shortly(recipe, **arguments)
        return recipe


@dataclasses.dataclass
class Resume(Command):
    """Resume a stopped run of `keras-vit train`, with its settings.

    To resume `--seeds` or `--sweep-lr`, repeat the command of `keras-vit train` with `--resume`.

    Example: keras-vit resume runs/pets

    Args:
        workdir: directory of the run.
        model: new path of the model that the run began from, if it has moved.
        data: dataset as in `keras-vit train`, if the images have moved.
        teacher: new path of the teacher, if it has moved.
        strategy: devices as in `keras-vit train`, if they have changed.
    """

    workdir: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    model: str | None = None
    data: str | None = None
    teacher: str | None = None
    strategy: str | None = None

    def run(self):
        """Train, and print the paths of the results."""
        from keras_vit.evaluation import FewshotAccuracy
        from keras_vit.training.callbacks import MeasureRegularly
        from keras_vit.training.trainer import recorded_arguments, train

        workdir = self.workdir.expanduser().resolve()
        arguments, measured = recorded_arguments(workdir)
        for name in ("model", "data", "teacher", "strategy"):
            if getattr(self, name) is not None:
                arguments[name] = getattr(self, name)
        if self.strategy is not None:
            # The recorded number of shards belongs to the recorded strategy.
            arguments["model_shards"] = None
        reading = {name: arguments[name] for name in ("data_dir", "max_skipped")}
        callbacks = [
            MeasureRegularly(settings.pop("every"), FewshotAccuracy(**settings, **reading))
            for settings in measured
        ]
        run = train(**arguments, workdir=workdir, resume=True, callbacks=callbacks)
        show_run(run, callbacks, arguments["data"] if arguments["validation"] else None)


def show_run(run, callbacks, data):
    """Print the results of a run, and draw its figures if a dataset is given."""
    from keras_vit.checkpoints.run_files import LAST_MODEL, read_run
    from keras_vit.experiments.run_figures import draw_run

    recorded = read_run(run.workdir / LAST_MODEL)
    names = ("classes", "data_dir", "max_skipped", "exclude")
    if data is not None:
        options = {"upright": run.recipe.upright, **{name: recorded[name] for name in names}}
        for path in draw_run(run.workdir, data, run.recipe.loss, **options):
            print(f"Figure: {path}")
    best = describe_best(run.history, run.recipe.monitor)
    print(f"{best}; models and settings in {shlex.quote(str(run.workdir))}")
    for callback in callbacks:
        print(describe_fewshot(callback.rows[-1]))


def _sweep(*arguments, **options):
    """Sweep the learning rate, print the accuracies, and return the last run."""
    from keras_vit.experiments.sweep import sweep

    run, accuracies = sweep(*arguments, **options)
    has_thresholds = getattr(run.model, "thresholds", None) is not None
    measure = "mean average precision" if has_thresholds else "accuracy"
    for rate, accuracy in accuracies.items():
        chosen = "  <- chosen" if rate == run.recipe.learning_rate else ""
        result = "diverged" if accuracy is None else f"validation {measure} {accuracy:.2%}"
        print(f"learning rate {rate:g}: {result}{chosen}")
    return run


def describe_fewshot(row):
    """Return a line with the few-shot accuracies of a measurement."""
    accuracies = []
    for name, mean in row.items():
        if name.endswith("shot"):
            spread = f" ± {row[f'{name}_std']:.2%}" if f"{name}_std" in row else ""
            accuracies.append(f"{name[8:-4]}-shot accuracy {mean:.2%}{spread}")
    return f"After {row['step']} steps: {', '.join(accuracies)}"


def describe_best(history, monitor=None):
    """Return a line with the metric of the best epoch."""
    from keras_vit.experiments.sweep import best_of

    metric, best = best_of(history, monitor)
    if metric is None:
        return f"Trained for {len(history)} epoch{'' if len(history) == 1 else 's'}"
    return f"Best {_readable(metric)} {best:{_format_of(metric)}}"


def describe_seeds(results):
    """Return a line with the mean and standard deviation of `SeedResults`."""
    count = len(results.values)
    if results.metric is None:
        return f"Trained {count} models, without validation"
    style = _format_of(results.metric)
    deviation = "" if results.std is None else f" ± {results.std:{style}}"
    name = _readable(results.metric)
    return f"Best {name} of {count} seeds: {results.mean:{style}}{deviation}"


def _readable(metric):
    return metric.replace("val_", "validation ").replace("_", " ")


def _format_of(metric):
    return ".2%" if "accuracy" in metric else ".4f"
