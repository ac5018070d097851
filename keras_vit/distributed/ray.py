"""Predictions on a Ray cluster (`pip install 'keras-vit-zoo[ray]'`)."""

import logging

from keras_vit.core.files import absolute_path
from keras_vit.serving.predictor import Predictor

# By default, Ray would restart a worker forever, even if the worker always runs out of memory.
_RETRIES = {"max_restarts": 3, "max_task_retries": 3}


def predict(dataset, model, workers=2, rows=256, num_cpus=1, num_gpus=0, **settings):
    """Add the predictions of a model to a Ray dataset.

    Each worker loads the model once. Blocks are streamed, so images need not fit into the memory of
    the cluster. If a worker ends unexpectedly, Ray repeats its batches.

    Args:
        dataset: a `ray.data.Dataset` with one of the image columns of `Predictor`, as from
            `ray.data.read_binary_files` or `ray.data.read_images`.
        model: path of the model, at which all machines of the cluster find it, or the name of a
            checkpoint.
        workers: greatest number of workers (actors), each with one copy of the model.
        rows: number of images per call of a worker.
        num_cpus: number of cores per worker.
        num_gpus: number of GPUs per worker, such as 1 or 0.5.
        **settings: arguments of `Predictor`, such as `outputs` and `batch_size`.

    Returns:
        A `ray.data.Dataset` with the columns of `dataset` except the images, the columns of
        `outputs`, and `error`.

    Raises:
        ValueError: if an argument of `Predictor` is out of range.
    """
    # If settings are invalid, raise the error in this process, not in a worker.
    Predictor(model, **settings)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "fn_constructor_kwargs": settings}
    return _map(dataset, Predictor, absolute_path(model), rows, workers, **options)


def _map(dataset, actor, argument, rows, workers, **options):
    """Map batches of a dataset with a pool of actors, which are made by `actor(argument)`."""
    import ray.data

    return dataset.map_batches(
        actor,
        fn_constructor_args=(argument,),
        batch_size=rows,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        **_RETRIES,
        **options,
    )


def write_on_cluster(job, parts, workers=2, address=None, num_gpus=0):
    """Write parts of a job on a cluster, whose machines must share the directories of the job.

    Args:
        job: a `keras_vit.distributed.batch.Job`.
        parts: list of the numbers of the parts.
        workers: greatest number of workers (actors).
        address: address of the cluster, such as `"auto"`; `None` to start Ray on this machine.
        num_gpus: number of GPUs per worker.

    Returns:
        The number of images that cannot be decoded.

    Raises:
        ValueError: if the cluster has too few GPUs, the model cannot be loaded, or an argument does
            not fit the model.
        OSError: if the cluster cannot be reached, a file cannot be written, or workers end
            repeatedly.
    """
    import ray.data

    # Ray needs one logical core per worker, and one for reading.
    options = {} if address else {"num_cpus": workers + 1, "include_dashboard": False}
    broken, starts_ray = 0, not ray.is_initialized()
    try:
        if starts_ray:
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
        available = ray.cluster_resources().get("GPU", 0)
        if num_gpus > available:
            # Ray would wait forever for more GPUs.
            raise ValueError(
                f"`num_gpus` must be at most the {available:g} GPUs of the cluster. "
                f"Received: num_gpus={num_gpus:g}"
            )
        rows = [{"part": part} for part in parts]
        items = ray.data.from_items(rows, override_num_blocks=len(rows))
        for row in _map(items, _Writer, job, 1, workers, num_gpus=num_gpus).iter_rows():
            if row["problem"]:
                raise ValueError(row["problem"])
            broken += int(row["broken"])
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise OSError(
            "the workers of Ray ended repeatedly, perhaps because memory ran out; run the same "
            f"command again to write the missing parts ({type(error).__name__})"
        ) from error
    finally:
        if starts_ray:
            ray.shutdown()
    return broken


class _Writer:
    """Actor that writes the part whose number is in a batch of one row."""

    def __init__(self, job):
        self._job = job

    def __call__(self, batch):
        (part,) = batch["part"].tolist()
        try:
            return {"broken": [self._job.write(part)[1]], "problem": [""]}
        # Return the message, because Ray would hide it in a longer message.
        except (ValueError, OSError, ImportError) as error:
            return {"broken": [0], "problem": [str(error)]}
