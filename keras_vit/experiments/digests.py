"""Digests of data, to detect changes when results are resumed."""

import dataclasses
import json
import logging

from keras_vit.core.files import differences
from keras_vit.core.logging import log_once
from keras_vit.data.datasets import find_source
from keras_vit.data.sources.kinds import find_kind
from keras_vit.training.recipes.recipe import Recipe

_SUFFIX = "_digest"


def data_digests(name, splits, classes=None, prefix=""):
    """Return a dictionary of digests of splits; empty unless the kind of dataset is digested."""
    kind, _ = find_kind(name)
    if kind is None or not kind.is_digested:
        return {}
    return {
        f"{prefix}{split}{_SUFFIX}": find_source(name, split, classes).digest() for split in splits
    }


def recorded_differences(before, now, path):
    """List the `differences` of two dictionaries of settings, apart from unrecorded digests.

    Logs one warning per path if `before` was recorded by a version that did not record digests.
    """
    digests = [name for name in now if name.endswith(_SUFFIX)]
    missing = [name for name in digests if name not in before]
    # A dataset that was added to a study has no earlier results.
    if missing and len(missing) == len(digests):
        log_once(
            logging.WARNING,
            f"{path} was begun by a version that did not record digests: its earlier results may "
            "be for other data or another model",
        )
    recorded = {name: now[name] for name in now if name not in missing}
    # One may be left out, too.
    before = {n: v for n, v in before.items() if n in now or not n.endswith(_SUFFIX)}
    before = _with_defaults(before, now)
    if before.get("finetune") and recorded.get("finetune"):
        before["finetune"] = _with_defaults(before["finetune"], recorded["finetune"])
    # A dataset numbers the classes to keep in its own order.
    return differences(
        before, recorded, unordered=("classes", "fewshot_classes", "finetune_classes")
    )


def _with_defaults(before, now):
    """Add the settings of a recipe that earlier versions did not have, with their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}
    known = [n for n in now if defaults.get(n, dataclasses.MISSING) is not dataclasses.MISSING]
    return {**json.loads(json.dumps({name: defaults[name] for name in known})), **before}
