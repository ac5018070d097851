"""Predictions on a cluster of Ray."""

import logging
import os
import socket

from keras_vit.distributed.batch import Parts
from keras_vit.serving.prediction.predictor import Predictor

_SECONDS_TO_CONNECT = 10
# Left to itself, Ray restarts for ever a worker that is killed for its memory each time.
_RETRIES = {"max_restarts": 3, "max_task_retries": 3}


def predict(dataset, model, workers=2, rows=256, num_cpus=1, num_gpus=0, **settings):
    """Add the predictions of a model to a dataset of Ray.

    Each worker loads the model once. Blocks are streamed: the cluster never holds all images. Ray
    runs the batches of a worker that vanishes again.

    Args:
        dataset: a `ray.data.Dataset` with one of the image columns of `Predictor`, such as those of
            `ray.data.read_binary_files` and `ray.data.read_images`.
        model: path of the model, which all machines of the cluster must reach, or the name of a
            checkpoint.
        workers: greatest number of actors, each with one copy of the model.
        rows: images per call of a worker.
        num_cpus: cores of a worker.
        num_gpus: GPUs of a worker, such as 1 or 0.5.
        **settings: arguments of `Predictor`, such as `outputs` and `batch_size`.

    Returns:
        A `ray.data.Dataset` with the other columns, those of `outputs`, and `error`.

    Raises:
        ImportError: if Ray is not installed.
        ValueError: if an argument of `Predictor` is out of range.
    """
    ray = import_ray()
    settings = Predictor(model, **settings).__getstate__()
    return dataset.map_batches(
        Predictor,
        fn_constructor_kwargs=settings,
        batch_size=rows,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        **_RETRIES,
    )


def write_parts(parts, missing, workers=2, address=None, num_gpus=0, on_images=None):
    """Write the missing parts of a job on a cluster, whose machines share the directories.

    Args:
        parts: `keras_vit.distributed.batch.Parts` of the job.
        missing: list of the numbers of the parts.
        workers: greatest number of actors.
        address: address of the cluster, such as `"auto"`; `None` starts one on this machine.
        num_gpus: GPUs of a worker.
        on_images: function that is called with a number of images whenever so many are predicted.

    Returns:
        The number of images that cannot be decoded.
    """
    ray = import_ray()
    _connect(ray, address, workers)
    rows = ray.data.from_items(
        [{"part": part} for part in missing], override_num_blocks=len(missing)
    )
    done = rows.map_batches(
        _Writer,
        fn_constructor_args=(parts.job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_gpus=num_gpus,
        **_RETRIES,
    )
    broken = 0
    try:
        for row in done.iter_rows():
            if row["problem"]:
                raise ValueError(row["problem"])
            broken += int(row["broken"])
            if on_images is not None:
                on_images(int(row["images"]))
    except ray.exceptions.RayError as error:
        raise OSError(
            "the workers of Ray ended again and again, perhaps killed for their memory; the same "
            "command writes the parts that are missing"
        ) from error
    return broken


def _connect(ray, address, workers):
    """Connect to a cluster, or start one on this machine, with a progress bar of ours alone."""
    if not ray.is_initialized():
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        # Logical ones: reading needs one beside those of the workers.
        local = {} if address else {"num_cpus": workers + 1, "include_dashboard": False}
        try:
            _check_reachable(address)
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **local)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"`address` must be that of a cluster of Ray. Received: address={address!r} "
                f"({error})"
            ) from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    for name in ("ray.data", "ray.data._internal"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _check_reachable(address):
    """Raise an error if nothing answers at `HOST:PORT`: Ray would try for minutes."""
    host, _, port = (address or "").rpartition("/")[2].partition(":")
    if port:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()


class _Writer:
    """What an actor does: write the part of a row."""

    def __init__(self, job):
        self._job, self._parts = job, None

    def __call__(self, batch):
        (part,) = batch["part"].tolist()
        try:
            self._parts = self._parts or Parts(self._job)
            broken, problem = self._parts.write(part), ""
        # Ray would hide the message of an error in its own.
        except (ValueError, OSError) as error:
            return {"images": [0], "broken": [0], "problem": [str(error)]}
        return {"images": [self._parts.size([part])], "broken": [broken], "problem": [problem]}


def import_ray():
    """Return the package Ray with its datasets."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            f"Ray is not installed: pip install 'keras-vit[ray]'. Received: {error}"
        ) from error
    return ray
