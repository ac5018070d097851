"""Functions that the layouts of Hugging Face transformers share: find, describe and configure.

Files keep the array names of the first releases of transformers; transformers 5 uses other names in
memory.
"""

import dataclasses
import itertools

from keras_vit.checkpoints.architecture import (
    check_project,
    check_recorded,
    check_setting,
    in_order,
    logger,
    torch_options,
)
from keras_vit.checkpoints.configuration import CONFIGURATION, preprocessor_of
from keras_vit.checkpoints.formats.format import Format
from keras_vit.checkpoints.weight_map import QUERY_KEY_VALUE, torch_layer
from keras_vit.models.options import VitOptions

# Names of activations in transformers, and their names in this package. Of several names for the
# same activation, the last is written to `config.json`.
ACTIVATIONS = {
    "gelu_python": "gelu",
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "swish": "silu",
    "silu": "silu",
}
# The `problem_type` of a multi-label model.
MULTI_LABEL = "multi_label_classification"


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Default settings of a kind of model, for a `config.json` that does not record them.

    Args:
        model_types: values of `model_type`.
        epsilon: epsilon of the LayerNorms.
        num_heads: number of attention heads.
        activation: name of the activation in transformers.
    """

    model_types: tuple[str, ...]
    epsilon: float
    num_heads: int = 12
    activation: str = "gelu"


def torch_attention(source, target, names):
    """Return the rows of an attention layer, given the names of its four projections."""
    pairs = zip(names, (*QUERY_KEY_VALUE, "output"), strict=True)
    layers = [torch_layer(f"{source}{name}.", f"{target}/{ours}") for name, ours in pairs]
    return tuple(itertools.chain(*layers))


def describe_encoder(shape_of, config, num_heads, defaults, settings=None, **fields):
    """Return the options of a model, from its arrays and its `config.json`.

    Args:
        shape_of: as in `Format.describe`.
        config: as in `Format.describe`.
        num_heads: as in `Format.describe`.
        defaults: the `Defaults` of the kind of model.
        settings: the part of `config` that describes the image tower, by default `config`.
        **fields: other options of this kind of model.
    """
    check_project(config, ("model_type", "architectures"), "transformers")
    settings = config if settings is None else settings
    check_setting(config, "model_type", *defaults.model_types)
    check_setting(settings, "hidden_act", *ACTIVATIONS)
    epsilon = settings.get("layer_norm_eps", defaults.epsilon)
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 < epsilon < 1:
        raise ValueError(
            "`layer_norm_eps` of the file's config.json must be a number between 0 and 1. "
            f"Received: layer_norm_eps={epsilon!r}"
        )
    heads = _heads(settings, num_heads, defaults)
    arguments = {
        **torch_options(shape_of, heads, num_heads, fields.get("gated_mlp", False)),
        "pooling": "token",
        "activation": ACTIVATIONS[settings.get("hidden_act", defaults.activation)],
        "class_token": True,
        "qkv_bias": shape_of("block_0/attention/query/bias") is not None,
        "patch_bias": shape_of("patch_embedding/projection/bias") is not None,
        "epsilon": epsilon,
        **fields,
    }
    options = VitOptions(image_size=None, **arguments)
    _check_recorded(config, settings, options)
    return options


def _check_recorded(config, settings, options):
    names = {
        "hidden_size": "embedding_dim",
        "num_hidden_layers": "depth",
        "intermediate_size": "mlp_dim",
        "patch_size": "patch_size",
        "num_channels": "image_channels",
        "qkv_bias": "qkv_bias",
    }
    check_recorded(settings, names, options)
    if options.num_classes:
        # transformers writes its default of two labels for a model without a head.
        check_recorded(config, {"num_labels": "num_classes"}, options)


def _heads(settings, num_heads, defaults):
    """Return the number of heads that a `config.json` records, or the default.

    Return `None` if there is no `config.json`, or if it lacks the number and `num_heads` is given.
    """
    heads = settings.get("num_attention_heads")
    if heads is not None or not settings or num_heads is not None:
        return heads
    logger.warning(
        "the config.json does not record num_attention_heads: %d are assumed, as in transformers",
        defaults.num_heads,
    )
    return defaults.num_heads


def settings_of(options):
    """Return the settings of an image tower for a `config.json`."""
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    return {
        "hidden_size": options.embedding_dim,
        "num_hidden_layers": options.depth,
        "num_attention_heads": options.num_heads,
        # If transformers lacks the activation, this is `None`, and `lost_options` in `save.py`
        # raises an error.
        "hidden_act": names.get(options.activation),
        "layer_norm_eps": options.epsilon,
        "image_size": _number_or_list(options.image_size),
        "patch_size": _number_or_list(options.patch_size),
        "num_channels": options.image_channels,
    }


def _number_or_list(pair):
    """Return one number for two equal numbers, and otherwise a list."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def read_class_names(config):
    """Return the names of the classes that a `config.json` records, or `None`."""
    names = in_order(config.get("id2label"))
    return None if isinstance(names, list) and names == default_names(len(names)) else names


def default_names(num_classes):
    """Return the names that transformers writes for classes without names."""
    return [f"LABEL_{index}" for index in range(num_classes)]


def _restore(checkpoint, model, has_new_head):
    """Set the thresholds of a multi-label model to 0.5, as transformers does."""
    config, num_classes = checkpoint.archive.config, model.options.num_classes
    if config.get("problem_type") == MULTI_LABEL and num_classes and not has_new_head:
        model.thresholds = (0.5,) * num_classes


def _configurer(config_of, processor_of):
    """Return a function for `Format.configure`; see `transformers_format`."""

    def configure(options, arrays, class_names, image_spec):
        architecture, model_type, settings = config_of(options)
        config = {
            "architectures": [architecture],
            "model_type": model_type,
            **settings,
            "dtype": "float32",
        }
        if labels := class_names or default_names(options.num_classes):
            config["id2label"] = dict(enumerate(labels))
            config["label2id"] = {label: index for index, label in enumerate(labels)}
        contents = config, processor_of(options, image_spec)
        return dict(zip(CONFIGURATION, contents, strict=True))

    return configure


def transformers_format(
    name, rows, title, find, describe, defaults, config_of, processor_of=preprocessor_of, **fields
):
    """Return the `Format` of a kind of model in transformers, with the fields that all kinds share.

    `config_of(options)` returns the class of the model, the `model_type` and the other settings of
    the `config.json`. `processor_of(options, image_spec)` returns the contents of the
    `preprocessor_config.json`.
    """
    return Format(
        name,
        rows,
        title,
        ".safetensors",
        find,
        describe,
        family="huggingface",
        model_types=defaults.model_types,
        class_names=read_class_names,
        config_options=("num_heads", "activation", "epsilon"),
        config_files=CONFIGURATION,
        configure=_configurer(config_of, processor_of),
        restore=_restore,
        multi_label={"problem_type": MULTI_LABEL},
        has_normalizations=True,
        **fields,
    )
