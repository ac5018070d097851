"""Predictions on a cluster of Ray."""

from keras_vit.distributed.batch import Parts
from keras_vit.serving.prediction.predictor import Predictor


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
    if not ray.is_initialized():
        # Logical ones: reading needs one beside those of the workers.
        local = {} if address else {"num_cpus": workers + 1, "include_dashboard": False}
        ray.init(address, log_to_driver=False, **local)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items(
        [{"part": part} for part in missing], override_num_blocks=len(missing)
    )
    done = rows.map_batches(
        _Writer,
        fn_constructor_args=(parts.job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_gpus=num_gpus,
    )
    broken = 0
    for row in done.iter_rows():
        broken += int(row["broken"])
        if on_images is not None:
            on_images(int(row["images"]))
    return broken


class _Writer:
    """What an actor does: write the part of a row."""

    def __init__(self, job):
        self._parts = Parts(job)

    def __call__(self, batch):
        (part,) = batch["part"].tolist()
        broken = self._parts.write(part)
        return {"part": [part], "images": [self._parts.size([part])], "broken": [broken]}


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
