"""Parse the names of the 50,000 files of the AugReg release. This module does not need Keras."""

import dataclasses
import re

DIRECTORY = "gs://vit_models/augreg/"

# The release has 9 models x 3 datasets x 7 augmentations x 2 weight decays x 2 settings of dropout
# and stochastic depth = 756 files, and 3 files of B/8. Each was fine-tuned 68 times (B/8: 34 times,
# at 224 only). The sum is 51,509 rows in index.csv, as printed by vit_jax_augreg.ipynb.
MODELS = ("Ti_16", "S_32", "S_16", "B_32", "B_16", "B_8", "L_16", "R_Ti_16", "R26_S_32", "R50_L_32")
AUGMENTATIONS = ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2")
# In the index, "i21k_30" stands for 30 epochs of i21k.
DATASETS = {"i1k": 1000, "i21k": 21843, "i21k_30": 21843}
FINETUNE_DATASETS = {
    "imagenet2012": 1000,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
    "kitti": 4,  # VTAB's distance to the nearest vehicle, in 4 bins
}
# Numbers of steps by their names, which are the thousands, rounded down.
STEPS = {"0k": 500, "2k": 2500, "10k": 10_000, "20k": 20_000}

PRETRAINED = (
    "{model}-{dataset}-{epochs}ep-lr_{lr}-aug_{augmentation}"
    "-wd_{weight_decay}-do_{dropout}-sd_{stochastic_depth}"
)
FINETUNED = "--{finetune_dataset}-steps_{finetune_steps}-lr_{finetune_lr}-res_{resolution}"
# A regular expression for the text of each field, and the function that converts the text.
FIELDS = {
    "model": ("|".join(MODELS), str),
    "dataset": ("|".join(DATASETS), str),
    "epochs": (r"\d+", int),
    "lr": (r"\d\.\d+", float),
    "augmentation": ("|".join(AUGMENTATIONS), str),
    "weight_decay": (r"0\.03|0\.1", float),
    "dropout": (r"0\.0|0\.1", float),
    "stochastic_depth": (r"0\.0|0\.1", float),
    "finetune_dataset": ("|".join(FINETUNE_DATASETS), str),
    "finetune_steps": ("|".join(STEPS), STEPS.get),
    "finetune_lr": (r"0\.001|0\.003|0\.01|0\.03", float),
    "resolution": ("224|384", int),
}
_NAME = re.compile(
    f"{PRETRAINED}({FINETUNED})?".format(
        **{field: f"(?P<{field}>{texts})" for field, (texts, _) in FIELDS.items()}
    )
)


@dataclasses.dataclass(frozen=True)
class AugRegFile:
    """One file of the AugReg release, described by its name.

    Args:
        model: the release's name of the architecture, such as `"R26_S_32"`.
        dataset: dataset of pre-training, such as `"i1k"` or `"i21k"`.
        epochs: epochs of pre-training.
        lr: learning rate of pre-training.
        augmentation: `"none"`, `"light0"`, ... `"strong2"`.
        weight_decay: weight decay of pre-training.
        dropout: dropout rate of pre-training.
        stochastic_depth: rate of stochastic depth in pre-training.
        finetune_dataset: dataset of fine-tuning, `None` for a pre-trained file.
        finetune_steps: steps of fine-tuning.
        finetune_lr: learning rate of fine-tuning.
        resolution: side of the images in the last training, in pixels.

    Reference:
        [How to train your ViT?](https://arxiv.org/abs/2106.10270), sections 3 and 4.5
    """

    model: str
    dataset: str
    epochs: int
    lr: float
    augmentation: str
    weight_decay: float
    dropout: float
    stochastic_depth: float
    finetune_dataset: str | None = None
    finetune_steps: int | None = None
    finetune_lr: float | None = None
    resolution: int = 224

    @property
    def variant(self):
        """Name of the builder of this architecture."""
        size, _, patch = self.model.rpartition("_")
        return f"{size}{patch}" if self.model.startswith("R") else f"ViT_{size}{patch}"

    @property
    def num_classes(self):
        """Width of the head."""
        return (DATASETS | FINETUNE_DATASETS)[self.finetune_dataset or self.dataset]

    @property
    def file_name(self):
        """Name in the index of the release, without `.npz`."""
        name = PRETRAINED.format(**vars(self))
        if self.finetune_dataset is None:
            return name
        steps = f"{self.finetune_steps // 1000}k"
        return name + FINETUNED.format(**{**vars(self), "finetune_steps": steps})

    @property
    def url(self):
        """Address of the file."""
        return f"{DIRECTORY}{self.file_name}.npz"


def parse_augreg(name: str) -> AugRegFile:
    """Parse the name of a file of the AugReg release.

    Args:
        name: name, with or without the directory and `.npz`. A pre-trained file is called
            `{model}-{ds}-{epochs}ep-lr_{lr}-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}`; the name of a
            fine-tuned file ends with `--{adapt_ds}-steps_{steps}-lr_{lr}-res_{res}`.

    Returns:
        An `AugRegFile` whose `file_name` is the name.

    Raises:
        ValueError: if the name has another form.

    Example:

    >>> from keras_vit.checkpoints.catalog.augreg import parse_augreg
    >>> file = parse_augreg(
    ...     "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
    ...     "--oxford_iiit_pet-steps_0k-lr_0.003-res_384"
    ... )
    >>> file.variant, file.num_classes, file.finetune_steps, file.resolution
    ('R26_S32', 37, 500, 384)
    """
    text = name.rpartition("/")[2].removesuffix(".npz")
    match = _NAME.fullmatch(text)
    if match is not None:
        texts = {field: value for field, value in match.groupdict().items() if value is not None}
        file = AugRegFile(**{field: FIELDS[field][1](value) for field, value in texts.items()})
        # Refuse other spellings of a number, such as "0300ep".
        if file.file_name == text:
            return file
    raise ValueError(
        f"`name` must be that of an AugReg file: {PRETRAINED}, followed, for a fine-tuned file, by "
        f"{FINETUNED}. Received: name={name!r}"
    )
