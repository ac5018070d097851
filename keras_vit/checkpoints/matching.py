"""Differences between the arrays of a file and the variables of a model."""

import difflib

from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import POSITION_TRANSFORMS
from keras_vit.models.parts import HEAD_LAYERS

# Beginnings of the paths of the head's variables.
HEAD_PATHS = tuple(f"{name}/" for name in HEAD_LAYERS)
# Names that an error lists per kind of difference.
MAX_LISTED = 4


def mismatches(checkpoint, found, shapes, fits_positions, drop_head):
    """List, as texts, the arrays of a file that are unused, missing or misshapen for a model.

    `found` has an `Entry` for each variable to fill; `shapes` are those of the variables by path.
    `fits_positions`: whether the position embedding can be fitted to the model's tokens.
    """
    naming = checkpoint.naming
    used = {entry.source for entry in found}
    if drop_head:
        used |= {
            row.source
            for row in checkpoint.format.rows
            if any(target.startswith(HEAD_PATHS) for target in row.targets)
        }
    missing = [entry.source for entry in found if entry.source not in naming.shapes]
    unused = [naming.sources[name].name for name in naming.shapes if name not in used]
    misshapen = []
    for entry in found:
        actual = naming.shapes.get(entry.source)
        expected = TRANSFORMS[entry.transform].shape([shapes[path] for path in entry.targets])
        if actual is not None and not _fits(entry, actual, expected, fits_positions):
            misshapen.append(f"{entry.source!r} is {actual}, not {expected}")
    problems = [
        listed("unused", [_with_nearest(name, missing) for name in unused]),
        listed("missing", [_with_nearest(name, unused) for name in missing]),
        listed("misshapen", misshapen),
    ]
    return [problem for problem in problems if problem]


def _fits(entry, actual, expected, fits_positions):
    if entry.transform in POSITION_TRANSFORMS and fits_positions:
        if entry.transform == "flat_positions":
            actual, expected = (1, *actual), (1, *expected)
        return len(actual) == 3 and actual[0] == 1 and actual[2] == expected[2]
    return TRANSFORMS[entry.transform].accepts(actual, expected)


def _with_nearest(name, others):
    nearest = difflib.get_close_matches(name, others, n=1)
    return f"{name!r} (near: {nearest[0]!r})" if nearest else repr(name)


def listed(kind, names):
    """Return a text such as `missing: a, b and 3 more`, empty without names."""
    if not names:
        return ""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{kind}: {', '.join(names[:MAX_LISTED])}{more}"
