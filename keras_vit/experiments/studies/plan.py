"""The arguments of a study, checked before hours of training."""

import dataclasses
import pathlib

from keras_vit.core.arguments import check_choice, check_integer
from keras_vit.data.loading import find_source, load
from keras_vit.data.sources.kinds import absolute_name
from keras_vit.experiments.digests import data_digests
from keras_vit.experiments.studies.settings import (
    DATA_SIZE,
    DATASETS,
    POSITIONS,
    PRETRAINING,
    STUDIES,
    has_patches,
)
from keras_vit.models.variants import find_variant
from keras_vit.training.recipes import find_recipe
from keras_vit.training.recipes.recipe import Recipe
from keras_vit.training.training_data import load_training_data

# Settings of the recipe that may be chosen on the validation images: section 4.3 of the paper, and
# the learning rate, which pooling needs its own of (appendix D.3).
TUNABLE = ("learning_rate", "weight_decay", "dropout", "label_smoothing")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The arguments of `study`, with the defaults filled in."""

    name: str
    recipe: Recipe
    data: str
    workdir: pathlib.Path
    models: tuple[str, ...] = ("ViT_Ti16",)
    seeds: int = 3
    classes: tuple[str, ...] | None = None
    data_dir: pathlib.Path | None = None
    fractions: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    datasets: tuple[str, ...] = ()
    factors: tuple[float, ...] = (0.5, 2.0)
    positions: tuple[str, ...] = tuple(POSITIONS)
    tune: dict = dataclasses.field(default_factory=dict)
    fewshot_data: str | None = None
    fewshot_classes: tuple[str, ...] | None = None
    shots: int = 5
    finetune: Recipe | None = None
    finetune_data: str | None = None
    finetune_classes: tuple[str, ...] | None = None
    finetune_fraction: float = 1.0

    @property
    def settings(self):
        """The lines of the study, a list of `Setting`."""
        return list(STUDIES[self.name].settings(self))

    @property
    def data_options(self):
        """The options that the dataset is loaded with."""
        return {"classes": self.classes, "data_dir": self.data_dir}

    @property
    def finetune_options(self):
        """The options that the dataset of the fine-tuning is loaded with."""
        return {"classes": self.finetune_classes, "data_dir": self.data_dir}

    @property
    def run_seeds(self):
        """The seeds, from that of the recipe on."""
        return range(self.recipe.seed, self.recipe.seed + self.seeds)

    def facts(self):
        """Return what all rows have in common; another seed is another row."""
        recipe = {**dataclasses.asdict(self.recipe), "seed": None}
        facts = {"study": self.name, "data": self.data, "classes": self.classes, **recipe}
        others = []
        if self.name == DATA_SIZE or self.fewshot_data:
            others += ["fewshot_data", "fewshot_classes", "shots"]
        if self.finetune:
            others += ["finetune_data", "finetune_classes", "finetune_fraction"]
            facts["finetune"] = dataclasses.asdict(self.finetune)
        facts.update({name: getattr(self, name) for name in others})
        if self.tune:
            facts["tune"] = self.tune
        splits = "train", "validation", "test"
        facts |= data_digests(self.data, splits, self.classes)
        for data in {*self.datasets} - {self.data}:
            facts |= data_digests(data, splits, self.classes, prefix=f"{data}_")
        if self.fewshot_data:
            data = self.fewshot_data, ("train", "test"), self.fewshot_classes
            facts |= data_digests(*data, prefix="fewshot_")
        if self.finetune:
            data = self.finetune_data, splits, self.finetune_classes
            facts |= data_digests(*data, prefix="finetune_")
        return facts

    def check(self):
        """Raise `ValueError` for what would otherwise be found after the first runs."""
        check_integer("seeds", self.seeds, 1)
        if not self.recipe.is_of_classes:
            raise ValueError(
                f"`recipe` must be one that trains on classes. Received: loss={self.recipe.loss!r}"
            )
        for name in ("models", *STUDIES[self.name].options):
            values = getattr(self, name)
            if not values or len({*values}) < len(values):
                raise ValueError(
                    f"`{name}` must have values, all different. Received: {name}={values}"
                )
        if not all(0 < fraction <= 1 for fraction in self.fractions):
            raise ValueError(f"`fractions` must be in (0, 1]. Received: fractions={self.fractions}")
        settings = self.settings
        self._check_options()
        self._check_sizes(settings)
        check_integer("shots", self.shots, 1)
        for setting in settings:
            if STUDIES[self.name].needs_patches and not has_patches(setting):
                raise ValueError(
                    f"`models` must have patches for the study {self.name!r}. "
                    f"Received: {setting.model}, a ResNet"
                )
            recipe = dataclasses.replace(self.recipe, **setting.changes)
            for field, values in self.tune.items() if recipe.is_of_classes else ():
                for value in values:
                    dataclasses.replace(recipe, **{field: value})
        self._check_data(settings)

    def _check_sizes(self, settings):
        """Check that the patches of each model tile the images of both trainings."""
        sizes = {"image_size": self.recipe.image_size}
        if self.finetune:
            sizes["finetune_image_size"] = self.finetune.image_size
        for model in {setting.model for setting in settings}:
            for name, size in sizes.items():
                try:
                    _ = find_variant(model).replace(image_size=size).grid
                except ValueError as error:
                    raise ValueError(f"`{name}` does not suit {model}: {error}") from None

    def _check_options(self):
        if self.fewshot_classes and not self.fewshot_data:
            raise ValueError(
                "`fewshot_classes` needs `fewshot_data`. "
                f"Received: fewshot_classes={self.fewshot_classes}, fewshot_data=None"
            )
        if (self.finetune is None) != (self.finetune_data is None):
            raise ValueError(
                "`finetune` and `finetune_data` need each other. Received: "
                f"finetune={self.finetune and 'a recipe'}, finetune_data={self.finetune_data}"
            )
        if self.finetune is None and (self.finetune_classes or self.finetune_fraction != 1):
            raise ValueError(
                "`finetune_classes` and `finetune_fraction` need `finetune`. Received: "
                f"finetune_classes={self.finetune_classes}, "
                f"finetune_fraction={self.finetune_fraction}, finetune=None"
            )
        if self.name in (DATASETS, PRETRAINING) and self.finetune is None:
            raise ValueError(
                f"The study {self.name!r} needs `finetune` and `finetune_data`. Received: neither"
            )
        if self.finetune and not self.finetune.is_of_classes:
            raise ValueError(
                "`finetune` must be a recipe that trains on classes. "
                f"Received: loss={self.finetune.loss!r}"
            )
        unknown = set(self.tune) - set(TUNABLE)
        if unknown or not all(self.tune.values()):
            raise ValueError(
                f"`tune` must have values for some of {', '.join(TUNABLE)}. "
                f"Received: tune={self.tune}"
            )

    def _check_data(self, settings):
        """Check that the datasets have what the study reads."""
        smallest = min(setting.fraction for setting in settings)
        for data in {setting.data or self.data for setting in settings}:
            load_training_data(self.recipe, data, fraction=smallest, **self.data_options)
            load(data, "test", self.recipe.image_size, 1, **self.data_options)
        if self.fewshot_data:
            for split in ("train", "test"):
                find_source(self.fewshot_data, split, self.fewshot_classes, self.data_dir)
        if self.finetune:
            options = {"fraction": self.finetune_fraction, **self.finetune_options}
            load_training_data(self.finetune, self.finetune_data, **options)
            load(self.finetune_data, "test", 1, 1, **self.finetune_options)


def make_plan(name, recipe, data, workdir, **options):
    """Return the `Plan` of a study; options that are `None` have their defaults."""
    check_choice("name", name, tuple(STUDIES))
    options = {option: value for option, value in options.items() if value is not None}
    data = next(iter(options.get("datasets", ())), None) if data is None else data
    if data is None:
        needed = "datasets" if name == DATASETS else "data"
        raise ValueError(f"`{needed}` must be given for the study {name!r}. Received: None")
    for study in STUDIES.values():
        for option in {*study.options} & {*options}:
            if study.name != name:
                raise ValueError(
                    f"`{option}` is for the study {study.name!r} alone. "
                    f"Received: the study {name!r}"
                )
    if "shots" in options and name != DATA_SIZE and "fewshot_data" not in options:
        raise ValueError(f"`shots` needs `fewshot_data`. Received: shots={options['shots']}")
    for option in {"fewshot_data", "finetune_data"} & {*options}:
        options[option] = absolute_name(options[option])
    for kind in options.get("positions", ()):
        check_choice("positions", kind, tuple(POSITIONS))
    if "datasets" in options:
        options["datasets"] = tuple(map(absolute_name, options["datasets"]))
    size = options.pop("finetune_image_size", None)
    if size is not None and "finetune" not in options:
        raise ValueError(
            f"`finetune_image_size` needs `finetune`. Received: finetune_image_size={size}"
        )
    if "finetune" in options:
        finetune = find_recipe(options["finetune"], "finetune")
        changes = {} if size is None else {"image_size": size}
        options["finetune"] = dataclasses.replace(finetune, **changes)
    # A study may be resumed from another working directory.
    workdir = pathlib.Path(workdir).expanduser().resolve()
    return Plan(name, find_recipe(recipe), absolute_name(data), workdir, **options)
