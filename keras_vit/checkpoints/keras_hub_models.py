"""Convert models from and to keras-hub, in memory."""

from typing import Any

import keras

from keras_vit.checkpoints.formats.keras_hub import KERAS_HUB, KERAS_HUB_ROWS
from keras_vit.checkpoints.load import assign
from keras_vit.checkpoints.reader import CheckpointReader
from keras_vit.checkpoints.save import ModelArchive, at_stored_size, check_describable
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import Naming, entries
from keras_vit.layers.layer import children
from keras_vit.models.image_model import ImageModel, options_of
from keras_vit.models.keras_files import check_finite
from keras_vit.models.vit import vision_transformer

# Names of options in keras-hub.
OPTION_NAMES = {
    "patch_size": "patch_size",
    "embedding_dim": "hidden_dim",
    "depth": "num_layers",
    "num_heads": "num_heads",
    "mlp_dim": "mlp_dim",
    "dropout": "dropout_rate",
    "attention_dropout": "attention_dropout",
    "epsilon": "layer_norm_epsilon",
    "class_token": "use_class_token",
}


def from_keras_hub(model: Any) -> ImageModel:
    """Build the model of a keras-hub ViT and copy its weights. Frozen layers stay frozen.

    Args:
        model: a `keras_hub.models.ViTBackbone` or `ViTImageClassifier`.

    Returns:
        A Functional `keras.Model`. For a backbone, the model returns all tokens.

    Raises:
        ValueError: if the model has another class, or this package cannot represent it.

    Reference:
        `keras_hub/src/models/vit` of keras-hub 0.32.

    Example:

        ```python
        hub_model = keras_hub.models.ViTImageClassifier.from_preset("vit_base_patch16_224_imagenet")
        model = keras_vit.from_keras_hub(hub_model)
        ```
    """
    options = _options(model)
    archive = ModelArchive(model, model.name, {})
    checkpoint = CheckpointReader(archive, KERAS_HUB, Naming.of(archive.shapes))
    copy = vision_transformer(**options)
    for variable, value in checkpoint.read(copy):
        assign(variable, value)
    mapped, _ = entries(KERAS_HUB_ROWS, [variable.path for variable in copy.weights])
    trained = {variable.path for variable in model.trainable_weights}
    frozen = {path for entry in mapped if entry.source not in trained for path in entry.targets}
    _freeze(copy, frozen)
    return copy


def to_keras_hub(model: keras.Model) -> Any:
    """Build a keras-hub ViT with the weights of a model. Frozen layers stay frozen.

    Args:
        model: a model of this package, with the erf GELU, that keras-hub can represent.

    Returns:
        A `keras_hub.models.ViTImageClassifier`; a `ViTBackbone` for a model without a head that
        returns all tokens (`pooling=None`).

    Raises:
        ValueError: if keras-hub has no such model, or a weight is not finite.

    Reference:
        `keras_hub/src/models/vit` of keras-hub 0.32.

    Example:

        ```python
        model = keras_vit.ViT_B16(activation="gelu", image_size=224)
        hub_model = keras_vit.to_keras_hub(model)
        ```
    """
    model = at_stored_size(model)
    options = options_of(model).resolved()
    hub_model = _build(options)
    check_finite(model)
    variables = {variable.path: variable for variable in hub_model.weights}
    values = {variable.path: variable.value for variable in model.weights}
    mapped, unmapped = entries(KERAS_HUB_ROWS, values)
    different = {entry.source for entry in mapped} ^ set(variables) | set(unmapped)
    if different:
        raise ValueError(
            "`model` must have a counterpart in keras-hub. "
            f"Received: a model with {', '.join(sorted(different)[:4])}, which has no counterpart"
        )
    for entry in mapped:
        arrays = [keras.ops.convert_to_numpy(values[path]) for path in entry.targets]
        array = TRANSFORMS[entry.transform].write(arrays, options.num_heads)
        assign(variables[entry.source], array)
    trained = {variable.path for variable in model.trainable_weights}
    _freeze(hub_model, {entry.source for entry in mapped if trained.isdisjoint(entry.targets)})
    return hub_model


def _freeze(layer, frozen):
    """Freeze the variables with the paths `frozen`, and layers whose variables are all frozen."""
    if layer.weights and frozen.issuperset(variable.path for variable in layer.weights):
        layer.trainable = False
        return
    for child in children(layer):
        _freeze(child, frozen)
    for variable in layer.weights:
        if variable.path in frozen:
            variable.trainable = False


def _options(model):
    """Return the options of `vision_transformer` that build a keras-hub model."""
    is_classifier = type(model).__name__ == "ViTImageClassifier"
    backbone = model.backbone if is_classifier else model
    if type(backbone).__name__ != "ViTBackbone":
        raise ValueError(
            "`model` must be a ViTBackbone or a ViTImageClassifier of keras-hub. "
            f"Received: {type(model).__name__} {getattr(model, 'name', model)!r}"
        )
    config = backbone.get_config()
    head = model.get_config() if is_classifier else {"pooling": None}
    has_class_token = config["use_class_token"]
    # keras-hub's mean includes the class token. Its `use_mha_bias` includes the output projection.
    if (head["pooling"] == "gap") == has_class_token or not all(
        config[f"use_{layer}_bias"] for layer in ("mha", "mlp", "patch")
    ):
        raise ValueError(
            "`model` must have all biases, and pool by its class token, or by the mean of patches "
            f"if it has no class token. Received: {model.name!r} with pooling={head['pooling']!r}, "
            f"use_class_token={has_class_token}"
        )
    return {
        **{ours: config[theirs] for ours, theirs in OPTION_NAMES.items()},
        "num_classes": head.get("num_classes", 0),
        "image_size": config["image_shape"][:2],
        "image_channels": config["image_shape"][2],
        "pooling": head["pooling"],
        "representation_size": head.get("intermediate_dim"),
        "classifier_activation": head.get("activation"),
        "activation": "gelu",
    }


def _build(options):
    check_describable(KERAS_HUB, options)
    needed = {"activation": "gelu", "position_embedding": "learned", "qk_norm": False}
    needed["resnet_stages"] = None
    different = [name for name, value in needed.items() if getattr(options, name) != value]
    if options.pooling not in ("token", "gap", None):
        different.append("pooling")
    is_backbone = options.pooling is None and not options.num_classes
    # keras-hub's mean includes the class token.
    pools = options.num_classes and (options.pooling == "gap") != options.class_token
    if different or not (is_backbone or pools):
        names = different or ["pooling", "class_token", "num_classes"]
        raise ValueError(
            "`model` must have a counterpart in keras-hub: the erf GELU, learned positions, and "
            "either a pooling and a head or neither of them. "
            f"Received: a model with {', '.join(names)}: {[getattr(options, n) for n in names]}"
        )
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(*options.image_size, options.image_channels),
        **{theirs: getattr(options, ours) for ours, theirs in OPTION_NAMES.items()},
        dtype="float32",
    )
    if is_backbone:
        return backbone
    return keras_hub.models.ViTImageClassifier(
        backbone,
        num_classes=options.num_classes,
        pooling=options.pooling,
        intermediate_dim=options.representation_size,
        activation=options.classifier_activation,
    )
