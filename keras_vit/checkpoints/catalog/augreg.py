"""The names of the 50,000 files of the AugReg release; nothing here needs Keras."""

import dataclasses
import re

DIRECTORY = "gs://vit_models/augreg/"

# The release has 9 models x 3 datasets x 7 augmentations x 2 weight decays x 2 of dropout and
# stochastic depth = 756 files, and 3 of B/8; each was fine-tuned 68 times (B/8: 34, at 224 only).
# These are the 51,509 rows of its index.csv, as printed by the release's vit_jax_augreg.ipynb.
MODELS = ("Ti_16", "S_32", "S_16", "B_32", "B_16", "B_8", "L_16", "R_Ti_16", "R26_S_32", "R50_L_32")
AUGMENTATIONS = ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2")
# The index calls 30 epochs of i21k "i21k_30".
DATASETS = {"i1k": 1000, "i21k": 21843, "i21k_30": 21843}
FINETUNE_DATASETS = {
    "imagenet2012": 1000,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
    "kitti": 4,  # VTAB's distance to the nearest vehicle, in 4 bins
}
# Thousands, rounded down.
STEPS = {"0k": 500, "2k": 2500, "10k": 10_000, "20k": 20_000}

PRETRAINED = (
    "{model}-{dataset}-{epochs}ep-lr_{lr}-aug_{augmentation}"
    "-wd_{weight_decay}-do_{dropout}-sd_{stochastic_depth}"
)
FINETUNED = "--{finetune_dataset}-steps_{finetune_steps}-lr_{finetune_lr}-res_{resolution}"
# The texts of each field as a regular expression, and how they are read.
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
    """One file of "How to train your ViT?", described by its name.

    Args:
        model: the release's name of the architecture, such as `"R26_S_32"`.
        dataset: dataset of pre-training, such as `"i1k"` or `"i21k"`.
        epochs: epochs of pre-training.
        lr: learning rate of pre-training.
        augmentation: `"none"`, `"light0"`, ... `"strong2"`.
        weight_decay: weight decay of pre-training.
        dropout: dropout rate of pre-training.
        stochastic_depth: rate of stochastic depth in pre-training.
        finetune_dataset: dataset of fine-tuning, `None` for a file that is only pre-trained.
        finetune_steps: steps of fine-tuning.
        finetune_lr: learning rate of fine-tuning.
        resolution: side of the images of the last training, in pixels.

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
        """Name of our builder of the same architecture."""
        size, _, patch = self.model.rpartition("_")
        return f"{size}{patch}" if self.model.startswith("R") else f"ViT_{size}{patch}"

    @property
    def num_classes(self):
        """Width of the head."""
        return (DATASETS | FINETUNE_DATASETS)[self.finetune_dataset or self.dataset]

    @property
    def file_name(self):
        """Name without `.npz`, as in the index of the release."""
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
        name: name, with or without the directory and `.npz`. That of a pre-trained file is
            `{model}-{ds}-{epochs}ep-lr_{lr}-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}`; that of a
            fine-tuned one ends with `--{adapt_ds}-steps_{steps}-lr_{lr}-res_{res}`.

    Returns:
        An `AugRegFile` whose `file_name` is the name.

    Raises:
        ValueError: if it is not such a name.

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
        texts = {field: found for field, found in match.groupdict().items() if found is not None}
        file = AugRegFile(**{field: FIELDS[field][1](found) for field, found in texts.items()})
        # "0300ep" is read as another name.
        if file.file_name == text:
            return file
    raise ValueError(
        f"`name` must be that of an AugReg file, {PRETRAINED}, for a fine-tuned one followed by "
        f"{FINETUNED}. Received: name={name!r}"
    )
