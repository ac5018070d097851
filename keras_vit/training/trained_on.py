"""The record of the images that a run trains on, in the run's directory."""

import json
import logging
import pathlib

from keras_vit.core.files import replacing
from keras_vit.data.fingerprints import Fingerprints, describe_changes, name_some

# One image per line, `[digest, label, id]` as JSON: those of the run, and those that the model was
# trained on before, by the run that this one was started from.
TRAINED_ON = "trained_on.jsonl"
TRAINED_BEFORE = "trained_before.jsonl"


def write_record(workdir, images, before=None):
    """Record what a run trains on.

    Args:
        workdir: `pathlib.Path` of the run's directory.
        images: `Fingerprints` of the images that the run trains on.
        before: `Fingerprints` of the images that the model was trained on before; `None` for none.

    Returns:
        A digest, to be saved in the states as `training_data`.
    """
    _write(workdir / TRAINED_ON, images)
    if before is not None and before.ids:
        _write(workdir / TRAINED_BEFORE, before)
    return images.digest()


def is_recorded(state):
    """Whether a run records its images: not if a version before 0.2 has begun it.

    Args:
        state: what `States.load` returned; `None` for a run that begins.
    """
    return state is None or state[1].get("training_data") is not None


def check_same_images(workdir, images, state):
    """Check that a resumed run has the images that it was begun with.

    Args:
        workdir: path of the run's directory.
        images: `Fingerprints` of the images that the run trains on now.
        state: what `States.load` returned.

    Raises:
        ValueError: if they are others; the message says what changed.
    """
    log = logging.getLogger("keras_vit")
    if not is_recorded(state):
        log.warning(
            "the run was begun by a version that did not record its training images: whether they "
            "are still the same is not known"
        )
        return
    if state[1]["training_data"] == images.digest():
        return
    before = _read(pathlib.Path(workdir) / TRAINED_ON)
    what = "other images" if before is None else describe_changes(before, images)
    raise ValueError(
        "A resumed run must have the training images that it was begun with. "
        f"Received: {what}; train in a new `workdir` to use them"
    )


def images_trained_on(workdir):
    """Read what the model of a run was trained on, in this run and before it.

    Args:
        workdir: path of the run's directory.

    Returns:
        `Fingerprints`, or `None` for a run of a version that did not record it.

    Raises:
        ValueError: if a record is damaged.
    """
    own = _read(pathlib.Path(workdir) / TRAINED_ON)
    before = _read(pathlib.Path(workdir) / TRAINED_BEFORE)
    if own is None or before is None:
        return own
    return Fingerprints(
        before.ids + own.ids, before.labels + own.labels, before.digests + own.digests
    )


def warn_of_trained_images(workdir, images):
    """Log a warning that names the images of a split that a run was trained on.

    Args:
        workdir: path of the run's directory.
        images: `Fingerprints` of the split.

    Returns:
        The ids of these images.
    """
    log = logging.getLogger("keras_vit")
    trained = images_trained_on(workdir)
    if trained is None:
        log.warning(
            "%s is a run of a version that did not record what it was trained on: whether the "
            "images that it is evaluated on are among it is not known",
            workdir,
        )
        return []
    found = images.ids_among(set(trained.digests))
    if found:
        log.warning(
            "%d of the %d images were trained on, so that the metrics are not those of new images: "
            "%s",
            *(len(found), len(images.ids), name_some(found, 10)),
        )
    return found


def _write(path, images):
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in images.rows())


def _read(path):
    if not path.exists():
        return None
    try:
        with path.open(encoding="utf-8") as file:
            rows = [tuple(json.loads(line)) for line in file]
        digests, labels, ids = zip(*rows, strict=True) if rows else ((), (), ())
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            "The record of what a run was trained on must be lines `[digest, label, id]`. "
            f"Received: {str(path)!r} ({error})"
        ) from error
    return Fingerprints(ids, labels, digests)
