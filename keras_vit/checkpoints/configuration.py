"""The JSON files next to weights: `config.json` and `preprocessor_config.json`."""

import json


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


def recorded_normalization(path):
    """Return the mean and standard deviation of pixels in [0, 1] that are recorded next to weights.

    Each is a tuple of one number or one per channel. Return `None` if nothing is recorded.
    """
    if path.suffix in (".npz", ".keras", ".h5"):
        return None
    directory = path if path.is_dir() else path.parent
    config = read_config(directory)
    path = directory / "preprocessor_config.json"
    # A directory of timm may still have the file of a model of transformers.
    recorded = config.get("pretrained_cfg") or (read_json(path) if path.is_file() else {})
    pairs = (
        (recorded.get("image_mean"), recorded.get("image_std")),
        (recorded.get("mean"), recorded.get("std")),
    )
    found = next((pair for pair in pairs if not any(values in (None, []) for values in pair)), None)
    # Without rescaling, the caller of the model has scaled the pixels to [0, 1].
    is_scaling = recorded.get("do_rescale") is not False
    factor = (is_scaling and recorded.get("rescale_factor")) or 1 / 255
    if recorded.get("do_normalize") is False:
        found = [0], [1]
    elif found is None:
        return None
    # For pixels in [0, 1]; files record fewer than 12 digits.
    mean, deviation, (factor, *_) = (_as_channels(values, directory) for values in (*found, factor))
    if factor <= 0:
        raise ValueError(
            f"`rescale_factor` of {str(path)!r} must be positive. Received: {factor!r}"
        )
    return tuple(
        tuple(round(value / (255 * factor), 12) for value in values) for values in (mean, deviation)
    )


def _as_channels(values, directory):
    """Return the values per channel; one number stands for all channels."""
    values = values if isinstance(values, list) else [values]
    if not all(isinstance(value, (int, float)) for value in values):
        raise ValueError(
            "Mean, standard deviation and factor of pixels next to the weights in "
            f"{str(directory)!r} must be numbers. Received: {values!r:.80}"
        )
    return tuple(values)


def read_json(path):
    """Return the JSON object in a file."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} must hold JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object. Received: {contents!r:.60}")
    return contents
