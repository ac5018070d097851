"""Predictions on a cluster of Ray."""

import contextlib
import logging
import socket
import warnings

from keras_vit.core.files import absolute_path
from keras_vit.distributed.batch import PartWriter
from keras_vit.serving.predictor import Predictor

_SECONDS_TO_CONNECT = 10
# By default Ray restarts a worker forever, also one that is killed for its memory each time.
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
    # Wrong settings are found here, and not in a worker.
    Predictor(model, **settings)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "fn_constructor_kwargs": settings}
    arguments = (absolute_path(model),)
    return _map(ray, dataset, Predictor, arguments, rows, workers, **options)


def _map(ray, dataset, actor, arguments, rows, workers, **options):
    """Map batches by a pool of actors."""
    with warnings.catch_warnings():
        # Ray 2.60 deprecates the retries and has nothing in their place.
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        return dataset.map_batches(
            actor,
            fn_constructor_args=arguments,
            batch_size=rows,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
            **_RETRIES,
            **options,
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

    Raises:
        ImportError: if Ray is not installed.
        ValueError: if the cluster cannot be reached, the model cannot be loaded, or an argument
            does not fit it.
        OSError: if a file cannot be written, or workers end again and again.
    """
    ray = import_ray()
    broken = 0
    with _connected(ray, address, workers):
        _check_gpus(ray, num_gpus)
        rows = [{"part": part} for part in missing]
        items = ray.data.from_items(rows, override_num_blocks=len(rows))
        job = (parts.job, parts.digest)
        done = _map(ray, items, _Writer, job, 1, workers, num_gpus=num_gpus)
        try:
            for row in done.iter_rows():
                if row["problem"]:
                    raise ValueError(row["problem"])
                broken += int(row["broken"])
                if on_images is not None:
                    on_images(int(row["images"]))
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            raise OSError(
                "the workers of Ray ended again and again, perhaps killed for their memory; the "
                f"same command writes the parts that are missing ({type(error).__name__})"
            ) from error
    return broken


@contextlib.contextmanager
def _connected(ray, address, workers):
    """Connect to a cluster, or start one on this machine, with our progress bar alone."""
    context = ray.data.DataContext.get_current()
    settings = ("enable_progress_bars", "print_on_execution_start")
    before = [getattr(context, name) for name in settings]
    logger = logging.getLogger("ray.data")
    level = logger.level
    is_own = not ray.is_initialized()
    if is_own:
        # Logical cores: one more, for reading.
        local = {} if address else {"num_cpus": workers + 1, "include_dashboard": False}
        try:
            _check_reachable(address)
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **local)
        except (OSError, RuntimeError, ValueError) as error:
            rule = "`address` must be that of a cluster of Ray"
            if address is None:
                rule = "`engine='ray'` must be able to start Ray on this machine"
            if "AF_UNIX path length" in str(error):
                rule += ", which needs a short path for temporary files (TMPDIR or RAY_TMPDIR)"
            raise ValueError(f"{rule}. Received: address={address!r} ({error})") from error
    for name in settings:
        setattr(context, name, False)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, value in zip(settings, before, strict=True):
            setattr(context, name, value)
        logger.setLevel(level)
        if is_own:
            ray.shutdown()


def _check_gpus(ray, num_gpus):
    """Raise an error for more GPUs than there are: Ray would wait for them."""
    there = ray.cluster_resources().get("GPU", 0)
    if num_gpus > there:
        raise ValueError(
            f"`num_gpus` (`--gpus`) must be at most the {there:g} GPUs of the cluster. "
            f"Received: {num_gpus:g}"
        )


def _check_reachable(address):
    """Raise an error if nothing answers at `HOST:PORT`: Ray would try for minutes."""
    host, _, port = (address or "").rpartition("/")[2].partition(":")
    if port:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()


class _Writer:
    """What an actor does: write the part of a row."""

    def __init__(self, job, digest):
        self._write = PartWriter(job, digest)

    def __call__(self, batch):
        (part,) = batch["part"].tolist()
        try:
            images, broken = self._write(part)
        # Ray would hide the message of an error in its own.
        except (ValueError, OSError, ImportError) as error:
            return {"images": [0], "broken": [0], "problem": [str(error)]}
        return {"images": [images], "broken": [broken], "problem": [""]}


def import_ray():
    """Return the package Ray with its datasets."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            f"Ray is not installed: pip install 'keras-vit-zoo[ray]'. Received: {error}"
        ) from error
    return ray
