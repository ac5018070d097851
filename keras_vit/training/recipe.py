"""The settings of a training run (`Recipe`), and the table of recipes (`RECIPES`)."""

import dataclasses
import itertools
import math
import pathlib
import tomllib
import typing
from typing import Literal

from keras_vit.core.arguments import (
    REGRESSION_LOSSES,
    SEGMENTATION,
    SEGMENTER_HEADS,
    TARGETS,
    check_choice,
    is_integer,
    is_number,
)
from keras_vit.data.images.preprocessing import AUGMENTATIONS
from keras_vit.models.options import POOLINGS, POSITION_EMBEDDINGS, POSITION_PLACEMENTS

# Optimizers of this package, which compute as optax does.
PAPER_OPTIMIZERS = ("adamw", "sgd")
# Names of classes of `keras.optimizers`.
KERAS_OPTIMIZERS = (
    *("adadelta", "adafactor", "adagrad", "adam", "adamax", "ftrl", "lamb", "lion", "muon"),
    *("nadam", "rmsprop", "schedulefreeadamw"),
)
OPTIMIZERS = (*PAPER_OPTIMIZERS, *KERAS_OPTIMIZERS)
# Dtypes in which `PAPER_OPTIMIZERS` may store the momentum.
MOMENTUM_DTYPES = ("float32", "bfloat16")
CLASS_LOSSES = ("softmax", "sigmoid")
DECAYS = ("linear", "cosine", "rsqrt", "staircase")
FLIPS = ("never", "random", "always")
BALANCES = ("none", "weights", "sampling")

# Rules for single settings: the end of the error message, a test of the value, and the names of the
# settings.
RANGES = (
    (
        "be a whole number",
        is_integer,
        *("image_size", "batch_size", "warmup_steps", "epochs", "steps", "frozen_blocks"),
        *("accumulation_steps", "random_crop_from", "seed", "patience", "unfreeze_steps"),
        "lora_rank",
    ),
    (
        "be a positive number",
        lambda value: is_number(value) and value > 0,
        *("image_size", "batch_size", "learning_rate", "epochs", "steps", "layer_decay"),
        *("accumulation_steps", "clip_norm", "patience", "lora_rank", "lora_alpha", "temperature"),
    ),
    (
        "be a number of at least 0",
        lambda value: is_number(value) and value >= 0,
        *("warmup_steps", "weight_decay", "frozen_blocks", "unfreeze_steps"),
    ),
    (
        "be at least 0 and less than 1",
        lambda value: is_number(value) and 0 <= value < 1,
        *("dropout", "label_smoothing", "ema_momentum", "label_weight"),
    ),
    ("be greater than 0 and at most 1", lambda value: 0 < value <= 1, "min_crop_area"),
    ("be at least 0 and less than 2**32", lambda value: 0 <= value < 2**32, "seed"),
    ("be a number", is_number, "head_bias"),
    ("be whole numbers", lambda values: all(map(is_integer, values)), "boundaries"),
    ("be positive", lambda rates: all(0 < r < math.inf for r in rates), "learning_rates"),
)
# Settings that may differ from their defaults only with some values of another setting: the names
# of the settings, the name of the other setting, and these values.
NEEDS = (
    (("label_smoothing",), "loss", ("softmax",)),
    (("segment_head",), "loss", (SEGMENTATION,)),
    (("head_bias",), "loss", CLASS_LOSSES),
    (("freeze",), "loss", (*CLASS_LOSSES, *REGRESSION_LOSSES)),
    (("class_balance",), "loss", (*CLASS_LOSSES, SEGMENTATION)),
    (("temperature",), "distillation", ("soft",)),
    # Keras's optimizers can accumulate, but would count each part as a step of the schedule.
    (("accumulation_steps", "momentum_dtype"), "optimizer", PAPER_OPTIMIZERS),
    (("layer_decay", "unfreeze_steps"), "optimizer", PAPER_OPTIMIZERS),
    (("boundaries",), "decay", ("staircase",)),
)
# Other invalid combinations: a test that is true for an invalid recipe, the rule that it breaks,
# and the settings to show in the error message.
COMBINATIONS = (
    (
        lambda r: (r.epochs is None) == (r.steps is None),
        "Exactly one of `epochs` and `steps` must be given; the other must be None",
        ("epochs", "steps"),
    ),
    (
        lambda r: any(a >= b for a, b in itertools.pairwise((r.warmup_steps, *r.boundaries))),
        "`boundaries` must be in rising order, and greater than `warmup_steps`",
        ("boundaries", "warmup_steps"),
    ),
    (
        lambda r: r.decay == "staircase" and not r.boundaries,
        '`decay="staircase"` needs `boundaries`',
        ("boundaries", "decay"),
    ),
    (
        lambda r: r.class_balance == "sampling" and not r.for_classifier,
        'With the loss "segmentation", `class_balance` must be "none" or "weights"',
        ("class_balance", "loss"),
    ),
    (
        lambda r: r.freeze and r.augmentation != "none",
        "`freeze` computes the features of each image once, without augmentation",
        ("freeze", "augmentation"),
    ),
    (
        lambda r: r.freeze + bool(r.frozen_blocks) + bool(r.unfreeze_steps) > 1,
        "Only one of `freeze`, `frozen_blocks` and `unfreeze_steps` can be given",
        ("freeze", "frozen_blocks", "unfreeze_steps"),
    ),
    (
        lambda r: r.lora_alpha and not r.lora_rank,
        "`lora_alpha` needs a `lora_rank`",
        ("lora_alpha", "lora_rank"),
    ),
    (
        lambda r: r.lora_rank and (r.freeze or r.segment_head == "mask"),
        "`lora_rank` can be combined neither with `freeze` nor with the decoder that "
        '`segment_head="mask"` adds',
        ("lora_rank", "freeze", "segment_head"),
    ),
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a training run; exactly one of `epochs` and `steps` is given.

    Args:
        image_size: side of the square training images, in pixels.
        batch_size: number of images in a training step.
        optimizer: `"adamw"` or `"sgd"` (momentum 0.9), which compute as optax does, or the name of
            another class of `keras.optimizers` in lower case, such as `"lion"` or `"muon"`.
        learning_rate: learning rate at the end of the warm-up.
        decay: decay of the learning rate after the warm-up: `"linear"` or `"cosine"` to the end of
            training, `"rsqrt"` (reciprocal square root of the number of steps), or `"staircase"`
            (piecewise constant, with `boundaries`).
        warmup_steps: number of steps in which the learning rate rises linearly from 0.
        boundaries: with the decay `"staircase"`, the numbers of steps after which the learning rate
            is divided by 10.
        epochs: number of passes over the training split.
        steps: number of updates of the weights.
        weight_decay: decoupled weight decay of kernels, before it is multiplied by the learning
            rate.
        loss: for classes of images `"softmax"` or `"sigmoid"` (cross-entropy of the softmax, or of
            one sigmoid per class); for masked patches the target to predict, `"mean_color"` (mean
            color of a patch), `"downsized"` (mean colors of the 4 x 4 parts of a patch) or
            `"pixels"`; for masks `"segmentation"` (cross-entropy of the softmax per pixel); for
            values `"regression"` or `"regression_mae"` (mean squared or mean absolute error of
            the standardized values).
        label_smoothing: share of a label that is spread over all classes; for the loss `"softmax"`.
        head_bias: initial bias of a new head. With the loss `"sigmoid"`, -10 makes each class
            improbable at the start.
        momentum_dtype: dtype in which the momentum of SGD, or the first moment of AdamW, is
            stored: `"bfloat16"` takes half the memory, as in vit_jax and big_vision; `None` for the
            dtype of the weights. `"adamw"` and `"sgd"` only.
        layer_decay: ratio of a block's learning rate to the learning rate of the next block.
            `"adamw"` and `"sgd"` only.
        frozen_blocks: number of blocks, counted from the first, that are not trained. If it is not
            0, the layers before the blocks are not trained either.
        lora_rank: rank of the matrices of LoRA, which are trained instead of the blocks, as in
            `keras_vit.enable_lora`; `None` to train the blocks.
        lora_alpha: the product of the LoRA matrices is multiplied by `lora_alpha / lora_rank`;
            `None` for the factor 1.
        accumulation_steps: number of parts into which a batch is divided to save memory. The
            gradients of the parts are accumulated. `"adamw"` and `"sgd"` only.
        remat: whether to recompute the activations of blocks in the backward pass, to save memory.
        ema_momentum: momentum of an exponential moving average (EMA) of the weights over the
            updates, which evaluation uses; `None` for no EMA.
        clip_norm: global norm at which gradients are clipped; `None` for no clipping.
        dropout: dropout rate of a new model, or of a model from a checkpoint of another project. A
            model from a `.keras` file keeps its dropout rate. A ResNet has no dropout.
        pre_logits: whether the head of a new model has a hidden tanh layer, as in the paper's
            pre-training. A ResNet has no such layer.
        pooling: pooling of a new model, as in `vision_transformer`.
        position_embedding: position embedding of a new model, as in `vision_transformer`.
        position_placement: where a new model adds its position embeddings, as in
            `vision_transformer`.
        axial: whether the blocks of a new model are axial, as in `vision_transformer`. A ResNet has
            no blocks.
        min_crop_area: smallest share of a training image's area in a random crop; `None` for no
            crop.
        random_crop_from: side of the square to which training images are resized before a random
            square of `image_size` is cut out, instead of a crop by `min_crop_area`; `None` for no
            such crop.
        flip: whether training images are flipped left and right: never, at random, or always, as in
            big_transfer.
        augmentation: further augmentation of training images, a name in `data.AUGMENTATIONS`.
        upright: whether photographs are turned upright by their EXIF orientation, in training and
            in evaluations of the run, except few-shot evaluation. By default photographs are used
            as stored, as in vit_jax.
        image_channels: number of channels of the images; `None` for those of the model.
        value_range: the stored values that become -1 and 1, `"dtype"` or a pair, as in
            `keras_vit.core.image_spec.ImageSpec`; `None` for the range of the model. Two ranges
            are measured once over the training images, and recorded in the run: `"percentiles"`,
            the 1st and 99th percentiles of all values, and `"deviations"`, the mean minus and plus
            two standard deviations of each channel.
        learning_rates: learning rates of which a sweep chooses one on held-out images.
            `keras-vit vtab` always makes a sweep, `keras-vit train` only with `--sweep-lr`.
        seed: seed of weights, dropout, shuffling and augmentation.
        monitor: metric that selects the model of the best epoch, such as `"val_loss"`,
            `"val_accuracy"` or `"val_balanced_accuracy"` (mean of the accuracies per class); by
            default the accuracy, and among equal accuracies the loss. If the name contains `loss`,
            smaller is better.
        patience: number of epochs without a better model after which training ends; `None` to
            train to the end.
        class_balance: how classes are balanced: `"weights"` weights each image by the inverse of
            the share of its class, `"sampling"` repeats images so that an epoch has about equally
            many images of each class, `"none"` does neither.
        freeze: whether only the head is trained (linear probing), on features that are computed
            once, without crops, flips and augmentation.
        unfreeze_steps: number of steps after which one more block is trained, from the last to the
            first (gradual unfreezing). The head is trained from the start. With 0, all layers are
            trained from the start. `clip_norm` limits the norm of all gradients, including those
            of frozen blocks. `"adamw"` and `"sgd"` only.
        distillation: what the model learns from a teacher, if `train` gets one: the probabilities
            (`"soft"`), or the most likely class (`"hard"`).
        temperature: temperature of the teacher's and the model's probabilities.
        label_weight: weight of the loss of the labels in training with a teacher; the loss of the
            teacher has the weight `1 - label_weight`. 0 is function matching: labels are not used.
        segment_head: head of a segmenter, as in `keras_vit.segmenter`.
    """

    image_size: int
    batch_size: int
    optimizer: Literal[OPTIMIZERS]
    learning_rate: float
    decay: Literal[DECAYS]
    warmup_steps: int
    boundaries: tuple[int, ...] = ()
    epochs: int | None = None
    steps: int | None = None
    weight_decay: float = 0.0
    loss: Literal[CLASS_LOSSES + REGRESSION_LOSSES + TARGETS + (SEGMENTATION,)] = "softmax"
    label_smoothing: float = 0.0
    head_bias: float = 0.0
    momentum_dtype: Literal[MOMENTUM_DTYPES] | None = None
    layer_decay: float = 1.0
    frozen_blocks: int = 0
    lora_rank: int | None = None
    lora_alpha: float | None = None
    accumulation_steps: int = 1
    remat: bool = False
    ema_momentum: float | None = None
    clip_norm: float | None = None
    dropout: float = 0.0
    pre_logits: bool = False
    pooling: Literal[POOLINGS] = "token"
    position_embedding: Literal[POSITION_EMBEDDINGS] = "learned"
    position_placement: Literal[POSITION_PLACEMENTS] = "stem"
    axial: bool = False
    min_crop_area: float | None = 0.05
    random_crop_from: int | None = None
    flip: Literal[FLIPS] = "random"
    augmentation: Literal[tuple(AUGMENTATIONS)] = "none"
    upright: bool = False
    image_channels: int | None = None
    value_range: tuple[float, float] | str | None = None
    learning_rates: tuple[float, ...] = ()
    seed: int = 0
    monitor: str | None = None
    patience: int | None = None
    class_balance: Literal[BALANCES] = "none"
    freeze: bool = False
    unfreeze_steps: int = 0
    distillation: Literal["soft", "hard"] = "soft"
    temperature: float = 1.0
    label_weight: float = 0.5
    segment_head: Literal[SEGMENTER_HEADS] = "linear"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # If a setting may be `None`, its type is a union that contains the `Literal`.
            kinds = (field.type,) if value is None else (field.type, *typing.get_args(field.type))
            for kind in kinds:
                if typing.get_origin(kind) is Literal:
                    check_choice(field.name, value, typing.get_args(kind))
        for rule, is_right, *fields in RANGES:
            for field in fields:
                value = getattr(self, field)
                if value is not None and not is_right(value):
                    raise ValueError(f"`{field}` must {rule}. Received: {field}={value!r}")
        for fields, other, values in NEEDS:
            changed, value = self.changed(fields), getattr(self, other)
            if changed and value not in values:
                raise ValueError(
                    f"`{changed[0]}` needs `{other}` to be {' or '.join(values)}. Received: "
                    f"{changed[0]}={getattr(self, changed[0])!r}, {other}={value!r}"
                )
        for is_wrong, rule, fields in COMBINATIONS:
            if is_wrong(self):
                received = ", ".join(f"{field}={getattr(self, field)!r}" for field in fields)
                raise ValueError(f"{rule}. Received: {received}")

    @property
    def needs_soft_labels(self):
        """Whether the images need soft labels."""
        mixes = AUGMENTATIONS[self.augmentation].mixes
        return mixes or self.loss == "sigmoid" or self.label_smoothing > 0

    @property
    def for_classifier(self):
        """Whether the model is a classifier of images, and not of pixels or masked patches."""
        return self.loss in CLASS_LOSSES

    @property
    def has_head(self):
        """Whether the model has a head with one output per class or value of an image."""
        return self.for_classifier or self.loss in REGRESSION_LOSSES

    def changed(self, names):
        """Return those of the `names` whose settings differ from their defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return [name for name in names if getattr(self, name) != defaults[name]]

    def epoch_lengths(self, num_examples: int) -> tuple[int, int]:
        """Return the number of epochs, and of steps per epoch, for a number of examples.

        Each epoch ends with an evaluation. If the recipe sets `steps`, all epochs have the same
        length: at least one pass over the examples, and at least 100 steps or a tenth of `steps`,
        whichever is less.

        Returns:
            `(epochs, steps_per_epoch)`.

        Raises:
            ValueError: if the warm-up takes all steps, or a boundary is after the last step.
        """
        steps_per_pass = -(-num_examples // self.batch_size)
        if self.epochs is not None:
            epochs, steps_per_epoch = self.epochs, steps_per_pass
        else:
            least = max(steps_per_pass, min(100, self.steps // 10), 1)
            lengths = (n for n in range(least, self.steps) if self.steps % n == 0)
            steps_per_epoch = next(lengths, self.steps)
            epochs = self.steps // steps_per_epoch
        total, last = epochs * steps_per_epoch, max(self.warmup_steps, *self.boundaries, 0)
        if last >= total:
            raise ValueError(
                "`warmup_steps` and `boundaries` must be smaller than the steps of the run, "
                f"{total}. Received: warmup_steps={self.warmup_steps}, "
                f"boundaries={self.boundaries}"
            )
        return epochs, steps_per_epoch


@dataclasses.dataclass(frozen=True)
class RecipeRow:
    """A row of the table of recipes.

    Args:
        name: name of the recipe.
        recipe: the `Recipe`.
        source: source of the settings, such as a table of the paper.
        reported: accuracy that the source reports, on ImageNet unless another dataset is named.
    """

    name: str
    recipe: Recipe
    source: str
    reported: str = ""


def recipe_from(settings):
    """Return the `Recipe` of a dictionary that was read from TOML or JSON.

    Lists stand for tuples. The string `"None"` stands for `None`, because TOML has no `None`.
    """

    def as_setting(value):
        if isinstance(value, list):
            return tuple(value)
        return None if value == "None" else value

    return Recipe(**{name: as_setting(value) for name, value in settings.items()})


def _read_rows():
    rows = {}
    file = pathlib.Path(__file__).with_name("recipes.toml")
    for name, settings in tomllib.loads(file.read_text(encoding="utf-8")).items():
        source, reported = settings.pop("source"), settings.pop("reported", "")
        base = settings.pop("base", None)
        inherited = vars(rows[base].recipe) if base else {}
        rows[name] = RecipeRow(name, recipe_from({**inherited, **settings}), source, reported)
    return rows


ROWS = _read_rows()
RECIPES = {name: row.recipe for name, row in ROWS.items()}


def find_recipe(recipe):
    """Return the `Recipe` that an argument stands for: a `Recipe`, a name, or a dictionary."""
    if isinstance(recipe, dict):
        return recipe_from(recipe)
    if not isinstance(recipe, Recipe) and recipe not in RECIPES:
        raise ValueError(
            f"`recipe` must be a `Recipe` or one of {', '.join(RECIPES)}. "
            f"Received: recipe={recipe!r}"
        )
    return RECIPES.get(recipe, recipe)
