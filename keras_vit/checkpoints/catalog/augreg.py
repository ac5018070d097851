"""The names of the 50,000 files of the AugReg release; nothing here needs Keras."""

import dataclasses

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
        """Width of the head, `None` for a dataset that the release does not have."""
        if self.finetune_dataset is None:
            return DATASETS.get(self.dataset)
        return FINETUNE_DATASETS.get(self.finetune_dataset)

    @property
    def file_name(self):
        """Name without `.npz`, as in the index of the release."""
        name = (
            f"{self.model}-{self.dataset}-{self.epochs}ep-lr_{self.lr}-aug_{self.augmentation}"
            f"-wd_{self.weight_decay}-do_{self.dropout}-sd_{self.stochastic_depth}"
        )
        if self.finetune_dataset is not None:
            name += (
                f"--{self.finetune_dataset}-steps_{self.finetune_steps // 1000}k"
                f"-lr_{self.finetune_lr}-res_{self.resolution}"
            )
        return name

    @property
    def url(self):
        """Address of the file."""
        return f"{DIRECTORY}{self.file_name}.npz"


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a name: its field, the text around it, and its possible values."""

    field: str
    label: str
    prefix: str = ""
    suffix: str = ""
    values: tuple = ()  # strings; () for any number
    read: type = str


_PRETRAINING = (
    _Part("model", "model", values=MODELS),
    _Part("dataset", "ds", values=tuple(DATASETS)),
    _Part("epochs", "epochs", suffix="ep", read=int),
    _Part("lr", "lr", "lr_", read=float),
    _Part("augmentation", "aug", "aug_", values=AUGMENTATIONS),
    _Part("weight_decay", "wd", "wd_", values=("0.03", "0.1"), read=float),
    _Part("dropout", "do", "do_", values=("0.0", "0.1"), read=float),
    _Part("stochastic_depth", "sd", "sd_", values=("0.0", "0.1"), read=float),
)
_FINETUNING = (
    _Part("finetune_dataset", "adapt_ds", values=tuple(FINETUNE_DATASETS)),
    _Part("finetune_steps", "steps", "steps_", values=tuple(STEPS), read=STEPS.__getitem__),
    _Part("finetune_lr", "lr", "lr_", values=("0.001", "0.003", "0.01", "0.03"), read=float),
    _Part("resolution", "res", "res_", values=("224", "384"), read=int),
)


def parse_augreg(name: str) -> AugRegFile:
    """Parse the name of a file of the AugReg release.

    Args:
        name: name, with or without the directory and `.npz`. That of a pre-trained file is
            `{model}-{ds}-{epochs}ep-lr_{lr}-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}`; that of a
            fine-tuned one ends with `--{adapt_ds}-steps_{steps}-lr_{lr}-res_{res}`.

    Returns:
        An `AugRegFile` whose `file_name` is the name.

    Raises:
        ValueError: if it is not such a name; the message says which part is wrong.

    Example:

    >>> from keras_vit.checkpoints.catalog.augreg import parse_augreg
    >>> file = parse_augreg(
    ...     "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
    ...     "--oxford_iiit_pet-steps_0k-lr_0.003-res_384"
    ... )
    >>> file.variant, file.num_classes, file.finetune_steps, file.resolution
    ('R26_S32', 37, 500, 384)
    """
    if not isinstance(name, str):
        raise ValueError(f"`name` must be the name of an AugReg file. Received: name={name!r}")
    text = name.rpartition("/")[2].removesuffix(".npz")
    pretraining, separator, finetuning = text.partition("--")
    fields = _read_parts(pretraining, _PRETRAINING, name)
    if separator:
        fields |= _read_parts(finetuning, _FINETUNING, name)
    return AugRegFile(**fields)


def _read_parts(text, parts, name):
    texts = text.split("-")
    if len(texts) != len(parts):
        form = "-".join(f"{part.prefix}{{{part.label}}}{part.suffix}" for part in parts)
        raise ValueError(
            f"`name` must have {len(parts)} parts, {form}, where {text!r} has {len(texts)}. "
            f"Received: name={name!r}"
        )
    return {
        part.field: _read_part(text, part, name) for text, part in zip(texts, parts, strict=True)
    }


def _read_part(text, part, name):
    middle = text.removeprefix(part.prefix).removesuffix(part.suffix)
    if part.values:
        fits = middle in part.values
        rule = "one of " + ", ".join(f"{part.prefix}{value}{part.suffix}" for value in part.values)
    else:
        fits = _is_plain_number(middle, part.read)
        example = {int: "300", float: "0.001"}[part.read]
        rule = f"a number written like {part.prefix}{example}{part.suffix}"
    if not fits or text != f"{part.prefix}{middle}{part.suffix}":
        raise ValueError(f"`{part.label}` must be {rule}, not {text!r}. Received: name={name!r}")
    return part.read(middle)


def _is_plain_number(text, kind):
    """Whether Python writes the number in the same way, so the name can be restored."""
    try:
        return str(kind(text)) == text and kind(text) > 0
    except ValueError:
        return False
