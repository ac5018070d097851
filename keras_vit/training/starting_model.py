"""`make_model` builds or loads the model that a run starts from."""

import dataclasses
import itertools
import logging
import os
from collections.abc import Sequence

import keras

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint
from keras_vit.checkpoints.catalog.download import find_file
from keras_vit.checkpoints.load import describe_checkpoint
from keras_vit.checkpoints.named_models import load_refusing_scaling
from keras_vit.checkpoints.reader import open_checkpoint
from keras_vit.checkpoints.run_files import find_model
from keras_vit.core.arguments import SEGMENTATION
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec
from keras_vit.core.text import as_words, name_some
from keras_vit.data.statistics import MEASURED_RANGES
from keras_vit.models import find_variant, freeze_blocks, replace_head, resize
from keras_vit.models.dense import backbone, segmenter
from keras_vit.models.image_model import image_spec_of
from keras_vit.models.keras_files import recorded_image_spec
from keras_vit.models.options import is_resnet
from keras_vit.models.surgery import dense_layers, freeze_base, with_channels
from keras_vit.models.tuning import enable_lora, quantize
from keras_vit.models.variants import builder_name, is_variant
from keras_vit.models.vit import build_model
from keras_vit.training.recipe import Recipe

# Settings of a recipe that apply only to new models.
MODEL_SETTINGS = (
    *("dropout", "pre_logits", "pooling"),
    *("position_embedding", "position_placement", "axial"),
)


def make_model(
    recipe: Recipe,
    model: keras.Model | str | os.PathLike,
    num_classes: int,
    dtype: str | None = None,
    kept_classes: Sequence[str] | None = None,
) -> keras.Model:
    """Build the model that a recipe trains: a new one, or a trained one.

    All layers except the recipe's `frozen_blocks` are trained, even if they are frozen in a loaded
    model. With a `lora_rank`, only the matrices of LoRA and the head are trained. LoRA matrices
    that a loaded model already has are first merged into its kernels. Kernels in int8 or int4 stay
    quantized if the recipe has a `lora_rank` (QLoRA); otherwise they are trained as floats, which
    is logged.

    Args:
        recipe: a `Recipe`.
        model: name of a variant, optionally with other sizes, such as `"ViT_Ti16(patch_size=4)"`;
            path of a `.keras` file or of a run's directory; or a checkpoint as in
            `keras_vit.from_checkpoint`. The name of a variant always means the variant: write
            `./ViT_Ti16` for a directory of that name. A loaded model gets the recipe's image size,
            and a new head of zeros unless `kept_classes` is given. It keeps its other settings,
            which is logged.
        num_classes: number of classes of the head. Models for masked patches have no head.
        dtype: dtype policy of the model; must be `None` for a `.keras` file, which contains a
            policy.
        kept_classes: class names of the dataset, if a trained model keeps its head; `None` for a
            new head.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if the model does not exist, its patches do not tile the recipe's images,
            `dtype` is given for a `.keras` file, or a head to keep has other classes than
            `kept_classes`.
    """
    if kept_classes is not None and (is_variant(model) or not recipe.has_head):
        raise ValueError(
            "`keep_head` (`--keep-head`) needs a trained model, and a loss for classes or values. "
            f"Received: keep_head=True, model={str(model)!r}, loss={recipe.loss!r}"
        )
    head_classes = num_classes if recipe.has_head else 0
    made = _new_or_loaded(recipe, model, None if kept_classes is not None else head_classes, dtype)
    if kept_classes is not None:
        model_classes = getattr(made, "class_names", None) or ()
        pairs = itertools.zip_longest(as_words(model_classes), as_words(kept_classes))
        changed = [f"{name!r} instead of {new!r}" for name, new in pairs if name != new]
        if changed:
            raise ValueError(
                "With `keep_head` (`--keep-head`), the model's class names must be those of the "
                f"dataset, in the same order. Received: model={str(model)!r}, with "
                f"{name_some(changed)}"
            )
    _log_kept_settings(recipe, made, is_new=is_variant(model))
    if recipe.loss == SEGMENTATION:
        made = _make_segmenter(recipe, made, num_classes)
    for layer in made.layers:
        if hasattr(layer, "remat"):
            layer.remat = recipe.remat
    # A run resizes whole images, as in the ViT paper. The saved model must not crop them.
    made.image_spec = image_spec_of(made).of_whole_image()
    if recipe.lora_rank is not None:
        made = enable_lora(made, recipe.lora_rank, recipe.lora_alpha)
    freeze_blocks(made, recipe.frozen_blocks)
    if recipe.freeze:
        freeze_base(made)
    if recipe.head_bias and kept_classes is None:
        # With a distillation token, the head has two biases.
        for variable in made.get_layer("head").weights:
            if variable.name == "bias":
                variable.assign(keras.ops.full(variable.shape, recipe.head_bias))
    return made


def pixels_of(recipe, model):
    """Return an `ImageSpec` with the channels and the range of values of a run's images.

    The recipe has precedence over the model, a `keras.Model` or an argument of `make_model`.
    `"dtype"` stands for a range that is not measured yet: with `None`, dark images would be warned
    about.
    """
    if isinstance(model, keras.Model):
        spec = image_spec_of(model)
    elif is_variant(model):
        spec = WHOLE_IMAGE
    elif find_model(model).suffix == ".keras":
        spec = recorded_image_spec(find_model(model))
    else:
        with open_checkpoint(find_file(model)) as checkpoint:
            options = describe_checkpoint(checkpoint, image_size=recipe.image_size)
        spec = ImageSpec(channels=options.image_channels)
    channels = spec.channels if recipe.image_channels is None else recipe.image_channels
    spec = spec.of_whole_image().with_channels(channels)
    value_range = "dtype" if recipe.value_range in MEASURED_RANGES else recipe.value_range
    return spec if value_range is None else dataclasses.replace(spec, value_range=value_range)


def _new_or_loaded(recipe, model, num_classes, dtype):
    """Build a new model, or load a trained model.

    A trained model gets a new head, unless `num_classes` is `None`.
    """
    keras.utils.set_random_seed(recipe.seed)
    if is_variant(model):
        row = with_settings(find_variant(model), recipe)
        channels = recipe.image_channels or 3
        row = row.replace(num_classes=num_classes, dtype=dtype, image_channels=channels)
        return build_model(row.replace(name=builder_name(row)))
    path = find_model(model)
    if path.suffix != ".keras":
        options = {"image_size": recipe.image_size, "dtype": dtype}
        if recipe.image_channels is not None:
            options["image_channels"] = recipe.image_channels
        if recipe.dropout:
            summary = inspect_checkpoint(model, image_size=recipe.image_size)
            if not is_resnet(summary.options):
                options["dropout"] = recipe.dropout
        return from_checkpoint(model, num_classes=num_classes, **options)
    if dtype is not None:
        raise ValueError(
            "`dtype` cannot be given for a .keras file, which contains a dtype policy. "
            f"Received: dtype={dtype!r}, model={str(model)!r}"
        )
    loaded = load_refusing_scaling(path)
    trained = loaded if num_classes is None else replace_head(loaded, num_classes)
    size = (recipe.image_size, recipe.image_size)
    if num_classes is None or trained.input_shape[1:3] != size:
        trained = resize(trained, size)
    if recipe.image_channels not in (None, trained.input_shape[-1]):
        trained = with_channels(trained, recipe.image_channels)
    modes = {part.quantization_mode for part in dense_layers(loaded)} - {None}
    for mode in modes if recipe.lora_rank is None else ():
        logging.getLogger("keras_vit").warning("the %s kernels are trained as floats", mode)
    return quantize(trained, *modes) if modes and recipe.lora_rank is not None else trained


def _make_segmenter(recipe, model, num_classes):
    """Build the segmenter of a recipe from a model.

    The segmenter's head takes the patches after the final normalization or, if the model has none,
    the outputs of four blocks.
    """
    names = [layer.name for layer in model.layers]
    last = "encoder_norm" if "encoder_norm" in names else None
    return segmenter(backbone(model, last and (last,), "blocks"), num_classes, recipe.segment_head)


def with_settings(variant, recipe):
    """Return a variant with the `MODEL_SETTINGS` of a recipe."""
    # ResNets have neither dropout nor a hidden layer in the head, as in Table 3 of the paper.
    if is_resnet(variant):
        return variant.replace(image_size=recipe.image_size)
    settings = {name: getattr(recipe, name) for name in MODEL_SETTINGS if name != "pre_logits"}
    settings["representation_size"] = variant.embedding_dim if recipe.pre_logits else None
    return variant.replace(image_size=recipe.image_size, **settings)


def _log_kept_settings(recipe, model, is_new):
    """Log the `MODEL_SETTINGS` in which the model differs from the recipe.

    Settings that have their default in the recipe are left out, except the dropout of a loaded
    model.
    """
    names = recipe.changed(MODEL_SETTINGS)
    if not is_new:
        names = [*dict.fromkeys(["dropout", *names])]
    options = getattr(model, "options", None)
    if options is None or not names:
        # A model that was not built by this package has no `options`.
        return
    # ResNets lack most of these options.
    actual = {"dropout": 0.0, **dict.fromkeys(MODEL_SETTINGS[2:]), **vars(options)}
    actual["pre_logits"] = getattr(options, "representation_size", None) is not None
    texts = [f"{name} {actual[name]!r}" for name in names if actual[name] != getattr(recipe, name)]
    if texts:
        logging.getLogger("keras_vit").warning(
            "the model keeps its own settings, not the recipe's: %s", ", ".join(texts)
        )
