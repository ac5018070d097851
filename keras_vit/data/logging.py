"""Messages of the logger `keras_vit`."""

import functools
import logging


@functools.cache
def log_once(level, text):
    """Log a line once per process.

    Args:
        level: level of the `logging` module.
        text: the line.
    """
    logging.getLogger("keras_vit").log(level, "%s", text)
