"""The files of a directory of weights: their names, and the contents of the JSON files."""

import json

from keras_vit.checkpoints.configuration.processor import check_settings

MODEL = "model.safetensors"
SHARD_INDEX = f"{MODEL}.index.json"
TF_MODEL = "tf_model.h5"
PREPROCESSOR = "preprocessor_config.json"
CONFIGURATION = ("config.json", PREPROCESSOR)
# transformers 5 saves the settings of images in it, where there are also settings of texts.
PROCESSOR = "processor_config.json"


def read_config(directory):
    """Return the contents of the `config.json` of a directory; empty if there is none."""
    path = directory / "config.json"
    config = read_json(path) if path.is_file() else {}
    for name in ("pretrained_cfg", "model_args"):
        if not isinstance(config.get(name) or {}, dict):
            raise ValueError(
                f"`{name}` of {str(path)!r} must be a JSON object. "
                f"Received: {name}={config[name]!r:.80}"
            )
    return config


def has_configuration(path):
    """Return whether JSON files describe the weights in a file of this name."""
    return path.suffix in (".safetensors", ".h5") and not path.name.endswith(".weights.h5")


def read_configuration(directory):
    """Return the contents of a `config.json`, and the settings of an image processor.

    Each is empty if there is none. As in transformers, settings in a `processor_config.json` come
    before those in a `preprocessor_config.json`.
    """
    config = read_config(directory)
    paths = [directory / PROCESSOR, directory / PREPROCESSOR]
    nested, own = (read_json(path) if path.is_file() else {} for path in paths)
    settings = nested.get("image_processor") or own
    if not isinstance(settings, dict):
        raise ValueError(
            f"`image_processor` of {str(paths[0])!r} must be a JSON object. "
            f"Received: {settings!r:.60}"
        )
    # timm's own settings come before those of a file of transformers.
    if not config.get("pretrained_cfg"):
        check_settings(settings, paths[settings is own])
    return config, settings


def read_json(path):
    """Return the JSON object in a file."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    # The second is that of brackets in brackets without end.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents
