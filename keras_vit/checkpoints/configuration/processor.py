"""Checks of the settings of an image processor of transformers."""

from keras_vit.core.arguments import is_integer, is_number


def check_settings(settings, path):
    """Raise `ValueError` for a setting of images that transformers would not write.

    Args:
        settings: contents of a `preprocessor_config.json`. `None` stands for the default.
        path: path of the file, for error messages.
    """
    for name, (rule, fits) in _RULES.items():
        value = settings.get(name)
        if value is not None and not fits(value):
            raise ValueError(
                f"`{name}` of {str(path)!r} must be {rule}; without that file only the weights are "
                f"read. Received: {name}={value!r:.80}"
            )


def _is_length(value):
    return is_integer(value) and value > 0


def _is_size(value):
    if isinstance(value, dict):
        return all(length is None or _is_length(length) for length in value.values())
    if isinstance(value, list):
        return len(value) == 2 and all(map(_is_length, value))
    return _is_length(value)


def _is_per_channel(value):
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(map(is_number, values))


_BOOLEAN = "true or false", lambda value: isinstance(value, bool)
_SIZE = "a positive integer, `[height, width]` or an object with positive integers", _is_size
_CHANNELS = "a finite number, or one for each channel", _is_per_channel
_RULES = {
    **dict.fromkeys(("do_resize", "do_rescale", "do_normalize", "do_center_crop"), _BOOLEAN),
    **dict.fromkeys(("size", "crop_size"), _SIZE),
    **dict.fromkeys(("image_mean", "image_std"), _CHANNELS),
    "resample": ("the number of a Pillow filter", is_integer),
    "rescale_factor": ("a positive number", lambda value: is_number(value) and value > 0),
}
