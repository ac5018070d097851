"""`keras-vit train`."""

import dataclasses
import importlib.util
import logging
import pathlib
import shlex
from typing import Annotated, Literal

import tyro

from keras_vit.cli.run_commands import train_command
from keras_vit.cli.run_lines import describe_best, describe_fewshot, describe_seeds
from keras_vit.core.arguments import check_integer
from keras_vit.core.choices import SEGMENTATION
from keras_vit.training.recipes import RECIPES, ROWS

DESCRIPTIONS = {
    name: f"{row.source}." + (f" Reported: {row.reported}." if row.reported else "")
    for name, row in ROWS.items()
}


@dataclasses.dataclass
class Auto:
    """Settings for the data, the model and this machine, logged with an estimate of the time."""

    minutes: float | None = None
    """Greatest time of the training; by default 60 on a CPU, and none on an accelerator."""
    seed: int = 0
    """Seed of weights, dropout, shuffling and augmentation."""
    image_size: int | None = None
    """Side of the images in pixels; by default it follows the images and the model."""
    upright: bool = False
    """Turn photographs upright as their EXIF orientation says."""


def check_chosen(auto, recipe):
    """Return the recipe of a run of `auto`, checked to have the settings that are given.

    A default, such as `--seed 0`, counts as not given.
    """
    for field in dataclasses.fields(auto):
        value, chosen = getattr(auto, field.name), getattr(recipe, field.name, None)
        if field.name != "minutes" and value not in (field.default, chosen):
            raise ValueError(
                f"`{field.name}` must be {chosen!r}, as when the run began. "
                f"Received: {field.name}={value!r}"
            )
    return recipe


def recipe_type(names, with_auto=False, note=""):
    """Return the type of a choice among named recipes, and perhaps `auto`.

    The note is added to the description of each.
    """
    named = tyro.extras.subcommand_type_from_defaults(
        {name: RECIPES[name] for name in names},
        {name: DESCRIPTIONS[name] + note for name in names},
    )
    about_auto = " ".join(Auto.__doc__.split()) + note
    auto = Annotated[Auto, tyro.conf.subcommand("auto", description=about_auto)]
    return auto | named if with_auto else named


# Those that `--help` lists; `--help-verbose` lists all.
COMMON_RECIPES = ("pretrain", "finetune", "finetune_augreg", "bit_hyperrule_medium", "segment")
COMMON_RECIPES += ("digits_pretrain", "digits_finetune")
NamedRecipe = recipe_type(RECIPES)
AnyRecipe = recipe_type(RECIPES, with_auto=True)
_FEWSHOT = ("fewshot_every", "fewshot_data", "fewshot_shots", "fewshot_seeds", "fewshot_classes")
# Fields of the command that are not arguments of `train`.
_NOT_ARGUMENTS = ("sweep_lr", "seeds", "debug", *_FEWSHOT)


@dataclasses.dataclass
class Train:
    """Train a model by a recipe; `keras-vit train RECIPE --help` shows its settings.

    `--help-verbose` describes the options and lists all recipes.

    Example: keras-vit train auto --model ViT_B16/imagenet21k --data folder:pets --workdir runs/pets
    """

    recipe: AnyRecipe
    """Settings of the training: `auto`, or those of a recipe."""
    model: str
    """Name of a variant (see `keras-vit models`), also with other sizes, as in
    'ViT_Ti16(patch_size=4, depth=6)'; a .keras file, a run's directory, or a checkpoint as in
    `keras-vit convert`."""
    data: str
    """`digits`, `folder:PATH`, `csv:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN`,
    `tfrecord-lists:PATTERN`, `masks:DIR` (images and masks of pixels), or one of the paper's
    datasets (`cifar10`; see `keras-vit data`)."""
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
    keep_head: bool = False
    """Keep the head of a trained model, to train it further. Its classes must be the dataset's, in
    the same order. By default the model gets a new head."""
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
    seeds: int | None = None
    """Train so many models, with the recipe's seed and the following ones, in the directories
    `seed-0`, `seed-1`, ... of the workdir, and print mean and standard deviation."""
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
        if self.seeds is not None:
            check_integer("seeds", self.seeds, 1)
        is_sweep = self.sweep_lr and not isinstance(self.recipe, Auto)
        if isinstance(self.recipe, Auto):
            self.recipe = self._choose(self.recipe)
        names = [field.name for field in dataclasses.fields(self)]
        options = {name: getattr(self, name) for name in names if name not in _NOT_ARGUMENTS}
        options["callbacks"] = callbacks
        train = _sweep if is_sweep else train

        def show(run):
            # The last run of a sweep has no images to validate on.
            show_run(run, callbacks, None if is_sweep and self.recipe.is_of_classes else self.data)

        if self.seeds is None:
            show(train(**options))
        else:
            from keras_vit.experiments.seeds import train_seeds

            try:
                results = train_seeds(**options, seeds=self.seeds, train=train, on_run=show)
            except (KeyboardInterrupt, SystemExit):
                log = logging.getLogger("keras_vit")
                log.info("to resume all seeds, run the same command with --resume")
                raise
            print(describe_seeds(results))
        self._print_next()

    def _print_next(self):
        workdir = shlex.quote(str(self.workdir))
        if self.recipe.is_of_classes or self.recipe.loss == SEGMENTATION:
            print(f"Next: keras-vit evaluate {workdir}")
        else:
            one = workdir if self.seeds is None else f"{workdir}/seed-{self.recipe.seed}"
            print(f"Next: keras-vit train finetune --model {one} ...")
        print(f"      tensorboard --logdir {workdir}")

    def _callbacks(self):
        """Return the callbacks that measure the few-shot accuracy; the data are checked."""
        if (self.fewshot_every is None) != (self.fewshot_data is None):
            raise ValueError(
                "`--fewshot-every` and `--fewshot-data` must be given together. Received: "
                f"fewshot_every={self.fewshot_every}, fewshot_data={self.fewshot_data!r}"
            )
        if self.fewshot_every is None:
            defaults = {field.name: field.default for field in dataclasses.fields(Train)}
            if given := [name for name in _FEWSHOT if getattr(self, name) != defaults[name]]:
                raise ValueError(
                    f"`--{given[0].replace('_', '-')}` needs `--fewshot-every`. "
                    f"Received: {given[0]}={getattr(self, given[0])}, fewshot_every=None"
                )
            return ()
        check_integer("fewshot_every", self.fewshot_every, 1)
        from keras_vit.evaluation import FewshotAccuracy
        from keras_vit.training.callbacks import MeasureRegularly

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
        """Return the recipe of `auto`, or that of the run to be resumed."""
        from keras_vit.checkpoints.runs import LAST_MODEL, RUN_FILE, read_run
        from keras_vit.checkpoints.trained import absolute_model_name
        from keras_vit.core.run_dir import RunDir
        from keras_vit.data.sources.kinds import absolute_name
        from keras_vit.experiments.sweep import sweep_shortly
        from keras_vit.training.auto import auto_recipe
        from keras_vit.training.recipes import find_recipe

        first = self.workdir if self.seeds is None else self.workdir / f"seed-{auto.seed}"
        # Before a training step is timed.
        RunDir(first, {}, self.resume, file=RUN_FILE).check()
        recorded = read_run(first / LAST_MODEL).get("recipe") if self.resume else None
        if recorded:
            return check_chosen(auto, find_recipe(recorded))
        left_out = ("sweep_lr", "debug", "recipe", "workdir", "resume")
        fields = [field for field in dataclasses.fields(self) if field.name not in left_out]
        options = {field.name: getattr(self, field.name) for field in fields}
        known = {name: options[name] for name in ("classes", "data_dir", "exclude")}
        # A head that is kept is trained already.
        may_freeze = self.teacher is None and not self.keep_head
        known |= {**dataclasses.asdict(auto), "may_freeze": may_freeze}
        recipe = auto_recipe(self.data, self.model, **known)
        if self.sweep_lr:
            arguments = {k: v for k, v in options.items() if k not in _NOT_ARGUMENTS}
            recipe = sweep_shortly(recipe, workdir=self.workdir, **arguments)
        given = {f.name: options[f.name] for f in fields if options[f.name] != f.default}
        given |= {"model": absolute_model_name(self.model), "data": absolute_name(self.data)}
        if self.teacher is not None:
            given["teacher"] = absolute_model_name(self.teacher)
        if self.exclude is not None:
            given["exclude"] = self.exclude.expanduser().resolve()
        base = "finetune" if recipe.optimizer == "sgd" else "pretrain"
        # Without the rates of the sweep, which has chosen one.
        recorded = dataclasses.replace(recipe, learning_rates=RECIPES[base].learning_rates)
        again = self.workdir.with_name(f"{self.workdir.name}-again")
        print(f"The same again: {train_command(base, recorded, {**given, 'workdir': again})}")
        return recipe


def show_run(run, callbacks, data):
    """Print what a run came to, and draw it on images of a dataset, if one is given."""
    from keras_vit.checkpoints.runs import LAST_MODEL, PREDICTOR_MODEL, read_run

    recorded = read_run(run.workdir / LAST_MODEL)
    names = ("classes", "data_dir", "max_skipped")
    options = {"upright": run.recipe.upright, **{name: recorded[name] for name in names}}
    if data is not None and run.recipe.is_of_classes:
        from keras_vit.experiments.run_figures import draw_run

        for path in draw_run(run.workdir, data, exclude=recorded["exclude"], **options):
            print(f"Figure: {path}")
    predictor = run.workdir / PREDICTOR_MODEL
    if data is not None and predictor.exists() and importlib.util.find_spec("matplotlib"):
        from keras_vit.data import load, mask_patches
        from keras_vit.inspection.figures.masked_patches import draw_masked_patches
        from keras_vit.models.files import load_model
        from keras_vit.models.parts import token_stride

        model = load_model(run.workdir / LAST_MODEL)
        images = load(data, "validation", model.input_shape[1:3], batch_size=8, **options)
        masked = mask_patches(images, token_stride(model), run.recipe.loss)
        picture = run.workdir / "masked_patches.png"
        draw_masked_patches(load_model(predictor), next(masked.as_numpy_iterator()), picture)
        print(f"What it predicts of masked patches: {picture}")
    best = describe_best(run.history, run.recipe.monitor)
    print(f"{best}; models and settings in {shlex.quote(str(run.workdir))}")
    for callback in callbacks:
        print(describe_fewshot(callback.rows[-1]))


def _sweep(*arguments, **options):
    """Choose a learning rate, and print the accuracies; return the last run."""
    from keras_vit.experiments.sweep import sweep

    run, accuracies = sweep(*arguments, **options)
    has_thresholds = getattr(run.model, "thresholds", None) is not None
    measure = "mean average precision" if has_thresholds else "accuracy"
    for rate, accuracy in accuracies.items():
        chosen = "  <- chosen" if rate == run.recipe.learning_rate else ""
        result = "diverged" if accuracy is None else f"validation {measure} {accuracy:.2%}"
        print(f"learning rate {rate:g}: {result}{chosen}")
    return run
