"""Predictions on a cluster of Ray (`pip install 'keras-vit-zoo[ray]'`)."""

import logging

from keras_vit.core.files import absolute_path
from keras_vit.serving.predictor import Predictor

# By default Ray restarts a worker forever, also one that is killed for its memory each time.
_RETRIES = {"max_restarts": 3, "max_task_retries": 3}


def predict(dataset, model, workers=2, rows=256, num_cpus=1, num_gpus=0, **settings):
    """Add the predictions of a model to a dataset of Ray.

    Each worker loads the model once. Blocks are streamed: the cluster never holds all images. Ray
    repeats the batches of a worker that ended.

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
        ValueError: if an argument of `Predictor` is out of range.
    """
    # Wrong settings are found here, and not in a worker.
    Predictor(model, **settings)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "fn_constructor_kwargs": settings}
    return _map(dataset, Predictor, absolute_path(model), rows, workers, **options)


def _map(dataset, actor, argument, rows, workers, **options):
    """Map batches by a pool of actors, which are made of the argument."""
    import ray.data

    return dataset.map_batches(
        actor,
        fn_constructor_args=(argument,),
        batch_size=rows,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        **_RETRIES,
        **options,
    )


def write_parts_on_ray(job, parts, workers=2, address=None, num_gpus=0):
    """Write parts of a job on a cluster, whose machines share the directories.

    Args:
        job: a `keras_vit.distributed.batch.Job`.
        parts: list of the numbers of the parts.
        workers: greatest number of actors.
        address: address of the cluster, such as `"auto"`; `None` starts one on this machine.
        num_gpus: GPUs of a worker.

    Returns:
        The number of images that cannot be decoded.

    Raises:
        ValueError: if the cluster has too few GPUs, the model cannot be loaded, or an argument does
            not fit it.
        OSError: if the cluster cannot be reached, a file cannot be written, or workers end again
            and again.
    """
    import ray.data

    # One logical core more than workers, for reading.
    local = {} if address else {"num_cpus": workers + 1, "include_dashboard": False}
    broken, is_own = 0, not ray.is_initialized()
    try:
        if is_own:
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **local)
        there = ray.cluster_resources().get("GPU", 0)
        if num_gpus > there:
            # Ray would wait for them.
            raise ValueError(
                f"`num_gpus` must be at most the {there:g} GPUs of the cluster. "
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
            "the workers of Ray ended again and again, perhaps killed for their memory; the "
            f"same command writes the parts that are missing ({type(error).__name__})"
        ) from error
    finally:
        if is_own:
            ray.shutdown()
    return broken


class _Writer:
    """What an actor does: write the part of a row."""

    def __init__(self, job):
        self._job = job

    def __call__(self, batch):
        (part,) = batch["part"].tolist()
        try:
            return {"broken": [self._job.write(part)[1]], "problem": [""]}
        # Ray would hide the message of an error in its own.
        except (ValueError, OSError, ImportError) as error:
            return {"broken": [0], "problem": [str(error)]}
