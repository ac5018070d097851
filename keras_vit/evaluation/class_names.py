"""Check that a model and a dataset number their classes in the same way."""

import logging
import re
import shlex

from keras_vit.core.imagenet import as_words


def check_same_classes(model_names, data_names, must_be_equal):
    """Check that a model and a dataset mean the same classes by the same numbers.

    All synsets of ImageNet mean the same as its words. Other projects may spell the names
    differently: unless they `must_be_equal`, a warning is logged if they differ.
    """
    model_names, data_names = as_words(model_names), as_words(data_names)
    if len(model_names) != len(data_names):
        is_part = set(model_names) < set(data_names)
        hint = f"; `--classes {shlex.join(model_names)}` takes the model's alone" if is_part else ""
        raise ValueError(
            f"The dataset must have the model's {len(model_names)} classes. "
            f"Received: {len(data_names)} classes{hint}"
        )
    pairs = zip(model_names, data_names, strict=True)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    is_moved = any(name in data_names for name, _ in different)
    if is_moved or (must_be_equal and different):
        raise ValueError(
            f"The dataset must have the model's classes {model_names!r:.500}, in this order. "
            f"Received: {data_names!r:.500}"
        )
    has_synsets = all(re.fullmatch(r"n\d{8}", name) for name in data_names)
    if different and not has_synsets:
        logging.getLogger("keras_vit").warning(
            "the classes of the model and of the dataset have different names and are compared by "
            "their order: %r is %r",
            *different[0],
        )
