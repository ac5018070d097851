"""The files of a directory of weights: their names, and the contents of the JSON files."""

import json

MODEL = "model.safetensors"
SHARD_INDEX = f"{MODEL}.index.json"
TF_MODEL = "tf_model.h5"
PREPROCESSOR = "preprocessor_config.json"
CONFIGURATION = ("config.json", PREPROCESSOR)
# transformers 5 saves the settings of images in it, where there are also settings of texts.
PROCESSOR = "processor_config.json"


def has_configuration(path):
    """Return whether JSON files describe the weights in a file of this name."""
    return path.suffix in (".safetensors", ".h5") and not path.name.endswith(".weights.h5")


def read_configuration(directory):
    """Return the contents of a `config.json`, and the settings of an image processor.

    Each is empty if there is none. As in transformers, settings in a `processor_config.json` come
    before those in a `preprocessor_config.json`.
    """
    config, processor = (read_json(directory / name) for name in ("config.json", PROCESSOR))
    objects = (config, "pretrained_cfg"), (config, "model_args"), (processor, "image_processor")
    for contents, name in objects:
        if not isinstance(contents.get(name) or {}, dict):
            raise ValueError(
                f"`{name}` of {str(directory)!r} must be a JSON object. "
                f"Received: {name}={contents[name]!r:.80}"
            )
    return config, processor.get("image_processor") or read_json(directory / PREPROCESSOR)


def read_json(path):
    """Return the JSON object in a file; empty if there is no file."""
    if not path.is_file():
        return {}
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    # A RecursionError is that of deeply nested JSON.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents
