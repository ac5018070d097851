"""The record of the images that a run trains on, in the run's directory."""

import json
import logging
import pathlib

from keras_vit.checkpoints.runs import read_run
from keras_vit.core.files import replacing
from keras_vit.data.fingerprints import Fingerprints, describe_changes, name_some
from keras_vit.training.runs.run import TRAINED_BEFORE, TRAINED_ON, VALIDATED_ON

# A record is in JSON: a line `{"images": count, "digest": ..., "run": id}`, and per image a line
# `[digest, label, id]`. `TRAINED_BEFORE` contains the images of the run that this one started from;
# the first lines of the other records have its digest as `before`.
_RECORDS = {"training": TRAINED_ON, "validation": VALIDATED_ON}


def run_fingerprints(data):
    """Return `Fingerprints` of the `"training"` and, if there are any, `"validation"` images."""
    datasets = zip(_RECORDS, data, strict=True)
    return {kind: dataset.fingerprints() for kind, dataset in datasets if dataset is not None}


def record_images(workdir, images, before=None):
    """Record the images that a run trains and validates on.

    `before` are the `Fingerprints` of the images that the model was trained on before. Return a
    dictionary of digests, to save in the states as `images`.
    """
    has_before = before is not None and len(before.ids) > 0
    if has_before:
        _write(workdir / TRAINED_BEFORE, before)
    else:
        # A killed process may have left one.
        (workdir / TRAINED_BEFORE).unlink(missing_ok=True)
    for kind, found in images.items():
        _write(workdir / _RECORDS[kind], found, before=before.digest() if has_before else None)
    return {kind: found.digest() for kind, found in images.items()}


def check_same_images(workdir, images, state):
    """Check that a resumed run has the images that it was begun with, or say what changed."""
    recorded = state[1]["images"]
    for kind in _RECORDS:
        now = images.get(kind)
        if recorded.get(kind) == (now and now.digest()):
            if now:
                _repair(pathlib.Path(workdir), kind, now)
            continue
        before, _ = _read(pathlib.Path(workdir) / _RECORDS[kind])
        what = "others" if None in (before, now) else describe_changes(before, now)
        raise ValueError(
            f"A resumed run must have the {kind} images that it was begun with. "
            f"Received: {what}; train in a new `workdir` to use them"
        )


def _repair(workdir, kind, images):
    """Write the record of a resumed run's images again if it is damaged or missing."""
    path = workdir / _RECORDS[kind]
    try:
        found, _ = _read(path)
    except ValueError:
        found = None
    if found is None:
        logging.getLogger("keras_vit").warning("%s was damaged or missing: written again", path)
        _, facts = _read(workdir / TRAINED_BEFORE)
        _write(path, images, before=facts.get("digest"))


def images_trained_on(workdir):
    """Return `Fingerprints` of the images that a run and those before it were trained on.

    If the run did not record them, this is logged, and the result is `None`.
    """
    path = pathlib.Path(workdir) / TRAINED_BEFORE
    own, facts = _read(path.with_name(TRAINED_ON))
    before, facts_before = _read(path)
    if own is None:
        logging.getLogger("keras_vit").warning(
            "%s has no %s: the images that the run was trained on cannot be named",
            *(workdir, TRAINED_ON),
        )
        return None
    digest = facts_before.get("digest")
    if facts.get("before", digest) != digest:
        if before is not None:
            raise _damaged(path, "with others than the images that the model was trained on before")
        logging.getLogger("keras_vit").warning(
            "%s is missing: the images that the model was trained on before this run cannot be "
            "named",
            path,
        )
    return own if before is None else before + own


def warn_of_trained_images(workdir, images):
    """Log a warning that names images of a split that a run was trained on; return their ids."""
    trained = images_trained_on(workdir)
    found = images.ids_among(set(trained.digests)) if trained is not None else []
    _warn_of_ids(found, images.ids)
    return found


def warn_of_trained_ids(workdir, ids):
    """Log the same warning of images of the run's dataset, of which only the ids are known."""
    trained, _ = _read(pathlib.Path(workdir) / TRAINED_ON)
    known = set(trained.ids) if trained is not None else ()
    _warn_of_ids([id for id in ids if id in known], ids)


def _warn_of_ids(found, ids):
    if found:
        logging.getLogger("keras_vit").warning(
            "%d of the %d images were trained on, so the metrics are not those of new images: %s",
            *(len(found), len(ids), name_some(found, 10)),
        )


def warn_of_validation(before, images, name="starting model"):
    """Log a warning that names validation images that a model was trained on before."""
    found = images.ids_among(set(before.digests))
    if found:
        logging.getLogger("keras_vit").warning(
            "the %s was trained on %d of the %d validation images, which choose the best model: %s",
            *(name, len(found), len(images.ids), name_some(found)),
        )


def warn_of_overlap(images):
    """Log a warning that names validation images that are training images of the same run."""
    training, validation = (
        set(zip(images[kind].ids, images[kind].digests, strict=True))
        for kind in ("training", "validation")
    )
    both = [id for id, _ in training & validation]
    if both:
        logging.getLogger("keras_vit").warning(
            "%d of the %d validation images, which choose the best model, are training images "
            "too: %s",
            *(len(both), len(images["validation"].ids), name_some(sorted(both))),
        )


def _write(path, images, **facts):
    rows = images.rows()
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        run = read_run(path).get("id")
        header = {"images": len(rows), "digest": images.digest(), "run": run, **facts}
        file.writelines(f"{json.dumps(line)}\n" for line in (header, *rows))


def _read(path):
    """Return the `Fingerprints` of a record and its first line; `(None, {})` without a record."""
    if not path.exists():
        return None, {}
    run = read_run(path).get("id")
    try:
        with path.open(encoding="utf-8") as file:
            header, *rows = (json.loads(line) for line in file)
        digests, labels, ids = zip(*rows, strict=True) if rows else ((), (), ())
        images = Fingerprints(ids, labels, digests)
        is_whole = header["digest"] == images.digest()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error
    if not is_whole:
        raise _damaged(path, f"{len(rows)} images with a different digest")
    if header.get("run") != run:
        raise _damaged(path, f"of the run {header['run']}, in the directory of the run {run}")
    return images, header


def _damaged(path, what):
    return ValueError(
        "The record of a run's images must be as the run has written it. "
        f"Received: {str(path)!r} ({what})"
    )
