"""The table of published checkpoints, and its rows by name; nothing here needs Keras."""

import difflib
import pathlib

from keras_vit.checkpoints.catalog.hub_models import HUB_CHECKPOINTS
from keras_vit.checkpoints.catalog.published import GOOGLE_CHECKPOINTS
from keras_vit.checkpoints.catalog.row import Checkpoint

_SUFFIXES = (".npz", ".safetensors", ".h5", ".keras")
CHECKPOINTS = (*GOOGLE_CHECKPOINTS, *HUB_CHECKPOINTS)

__all__ = ["CHECKPOINTS", "Checkpoint", "find_checkpoint", "list_checkpoints"]


def list_checkpoints(filter: str = "") -> tuple[Checkpoint, ...]:
    """Return the table of published checkpoints, or the rows that a text selects.

    Args:
        filter: words; a row is listed if its name or URL contains all of them, in upper or lower
            case.

    Returns:
        A tuple of `Checkpoint` rows. `row.name` is a value of `weights`.

    Raises:
        ValueError: if `filter` is not a string.

    Example:

    >>> from keras_vit.checkpoints.catalog import list_checkpoints
    >>> [row.name for row in list_checkpoints("b16 augreg")]
    ['ViT_B16/augreg_imagenet21k', 'ViT_B16/augreg_imagenet2012_384', 'ViT_B16/augreg_imagenet2012']
    """
    if not isinstance(filter, str):
        raise ValueError(f"`filter` must be a string. Received: filter={filter!r}")
    words = filter.lower().split()
    return tuple(
        row for row in CHECKPOINTS if all(word in f"{row.name} {row.url}".lower() for word in words)
    )


def find_checkpoint(name: str, variant: str | None = None, argument: str = "name") -> Checkpoint:
    """Return the row of a name.

    Args:
        name: whole name, such as `"ViT_B16/imagenet21k"`, or with a `variant` its tag alone.
        variant: name of the builder of the model.
        argument: name of the argument, for error messages.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: if there is none, or it has another variant; the message lists similar names.

    Example:

    >>> from keras_vit.checkpoints.catalog import find_checkpoint
    >>> find_checkpoint("imagenet21k", "ViT_B16").url
    'gs://vit_models/imagenet21k/ViT-B_16.npz'
    """
    rows = {row.name: row for row in CHECKPOINTS if variant in (None, row.variant)}
    whole = name if variant is None or "/" in str(name) else f"{variant}/{name}"
    if whole in rows:
        return rows[whole]
    if not rows:
        known = f": no published checkpoint of {variant} is known"
    elif variant is None:
        known = _alternatives(str(name), rows)
    else:
        tags = {row.tag: row.name for row in rows.values()}
        nearest = _nearest(str(name).rpartition("/")[2], tags)
        known = f" or a checkpoint of {variant}, such as {', '.join(nearest)}{_hub_hint(str(name))}"
    raise ValueError(
        f"`{argument}` must be an existing file or directory{known}. Received: {argument}={name!r}"
    )


def _alternatives(name, rows):
    """Return the suggestions that end the error for a name.

    For a path no checkpoints are listed: some of their names always resemble it.
    """
    own = [row.name for row in rows.values() if row.variant == name]
    if own:
        listed = ", ".join(own[:3])
        return f" or the name of a checkpoint, such as {listed}: {name} alone has no weights"
    sibling = nearest_file(name)
    found = f", such as {sibling}," if sibling else ""
    owner, slash, _ = name.partition("/")
    is_file = name.endswith(_SUFFIXES)
    variant = difflib.get_close_matches(owner, {row.variant for row in CHECKPOINTS}, 1, 0.8)
    of_owner = [row.name for row in rows.values() if slash and [row.variant] == variant]
    if not is_file and (not slash or of_owner):
        nearest = _nearest(name, of_owner or rows)
        return f"{found} or the name of a checkpoint, such as {', '.join(nearest)}"
    hub = "" if sibling else _hub_hint(name)
    return f"{found} or the name of a checkpoint (`keras-vit checkpoints` lists them){hub}"


def _hub_hint(name):
    """Return a suggestion for what may be the name of a repository, else an empty string."""
    owner, _, repository = name.partition("/")
    is_path = owner in ("", ".", "..", "~") or "/" in repository or name.endswith(_SUFFIXES)
    if is_path or not repository or owner in {row.variant for row in CHECKPOINTS}:
        return ""
    return f", or hf://{name} if it is a repository of the Hugging Face Hub"


def nearest_file(path):
    """Return the path with the most similar name in the same folder, or `None`."""
    try:
        path = pathlib.Path(path).expanduser()
        names = [other.name for other in path.parent.iterdir()]
    except (OSError, RuntimeError, ValueError):
        return None
    nearest = difflib.get_close_matches(path.name, names, n=1)
    return path.with_name(nearest[0]) if nearest else None


def _nearest(text, names, count=3):
    """Return the most similar names, the best first."""

    def likeness(name):
        # A tag alone is compared with the tags of the names, too.
        parts = (name, name.rpartition("/")[2])
        return max(difflib.SequenceMatcher(None, p.lower(), text.lower()).ratio() for p in parts)

    return sorted(names, key=likeness, reverse=True)[:count]
