"""Strategies: the devices and the processes that a model is trained on."""

import contextlib
import logging
import os

import keras
import numpy as np
from keras import ops

from keras_vit.data.processes import process

STRATEGIES = {
    "tensorflow": ("auto", "none", "mirrored", "tpu"),
    "jax": ("auto", "none", "data_parallel", "model_parallel"),
    "torch": ("auto", "none"),
}
# Environment variables that contain the number of processes: of Keras, Slurm and Open MPI.
PROCESS_COUNTS = (
    "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_SIZE",
)
# Axes along which a block's variables are sharded: the heads, and the MLP's hidden width. In an
# axial block, the path has one more part: the attention is along rows or along columns.
_TO_PARTS = r"block_\d+/(\w+/)?(attention/(query|key|value)|mlp/dense_0)"
_FROM_PARTS = r"block_\d+/(\w+/)?(attention/output|mlp/dense_1)"
BLOCK_LAYOUTS = {
    f"{_TO_PARTS}/kernel": (None, "model"),
    f"{_TO_PARTS}/bias": ("model",),
    f"{_FROM_PARTS}/kernel": ("model", None),
}


def strategy(name="auto", model_shards=None):
    """Return a strategy. Build and train the model in its `scope()`.

    With the JAX backend, the processes that a launcher has started train together. The launchers
    are Slurm (`srun`), Open MPI, torchrun (which sets `MASTER_ADDR`, `MASTER_PORT`, `WORLD_SIZE`
    and `RANK`), and any launcher that sets `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
    `KERAS_DISTRIBUTION_NUM_PROCESSES` and `KERAS_DISTRIBUTION_PROCESS_ID`.

    Args:
        name: `"auto"` (all accelerators of the same kind), `"none"` (one device); with TensorFlow
            `"mirrored"` (all GPUs of the machine) and `"tpu"`; with JAX `"data_parallel"` (a copy
            of the model on each device of all processes) and `"model_parallel"` (a copy of the
            model is divided among `model_shards` devices of a process).
        model_shards: number of devices among which `"model_parallel"` divides each block; by
            default the number of devices of a process. The number of heads and the width of the
            MLPs must be multiples of `model_shards`.

    Returns:
        A `tf.distribute.Strategy`, a `keras.distribution.Distribution`, or a `SingleDevice`.

    Raises:
        ValueError: if the backend does not have the strategy, or the strategy does not fit the
            devices and processes.

    Example:
    >>> with keras_vit.training.distribution.strategy("none").scope():
    ...     model = keras_vit.ViT_Ti16(num_classes=3, image_size=32)
    """
    backend = keras.backend.backend()
    if name not in STRATEGIES[backend]:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES[backend])} with the {backend} "
            f"backend. Received: strategy={name!r}"
        )
    if model_shards is not None and name != "model_parallel":
        raise ValueError(
            "`model_shards` is for the strategy `model_parallel`. "
            f"Received: model_shards={model_shards}, strategy={name!r}"
        )
    if backend == "jax":
        join_processes()
    if process()[1] > 1 and name == "none":
        raise ValueError(
            "`strategy` must be `data_parallel` (or `auto`) or `model_parallel` for several "
            f"processes. Received: strategy={name!r} in {process()[1]} processes"
        )
    if name == "none" or backend == "torch":
        return SingleDevice()
    if backend == "tensorflow":
        return _tensorflow_strategy(name)
    return _jax_distribution(name, model_shards)


class SingleDevice:
    """No distribution."""

    def scope(self):
        """Return a context that changes nothing."""
        return contextlib.nullcontext()


def _tensorflow_strategy(name):
    import tensorflow as tf

    gpus = tf.config.list_logical_devices("GPU")
    if name == "tpu" or (name == "auto" and tf.config.list_physical_devices("TPU")):
        # The default "local" stands for the chips of this TPU VM.
        tpu = os.environ.get("TPU_NAME", "local")
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu)
        return tf.distribute.TPUStrategy(resolver)
    if name == "auto" and len(gpus) < 2:
        return SingleDevice()
    if not gpus:
        logging.getLogger("keras_vit").warning("`mirrored` found no GPU and trains on the CPU")
    devices = gpus or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _jax_distribution(name, model_shards):
    import jax

    devices = keras.distribution.list_devices()
    if name == "model_parallel":
        # Each process loads the images for its copies of the model, so a copy may not be divided
        # between two processes.
        owners = [device.process_index for device in jax.devices()]
        if owners != sorted(owners):
            raise ValueError(
                "`model_parallel` needs the list of devices to be in the order of the processes. "
                f"Received: devices of the processes {owners}"
            )
        num_devices = len(devices) // process()[1]
        shards = num_devices if model_shards is None else model_shards
        if shards < 1 or num_devices % shards:
            raise ValueError(
                f"`model_shards` must divide the number of devices of a process, {num_devices}. "
                f"Received: model_shards={shards}"
            )
        shape = (len(devices) // shards, shards)
        mesh = keras.distribution.DeviceMesh(shape, ["batch", "model"], devices)
        layouts = keras.distribution.LayoutMap(mesh)
        for path, axes in BLOCK_LAYOUTS.items():
            layouts[path] = axes
        return keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
        )
    if name == "auto" and len(devices) == 1:
        return SingleDevice()
    # Keras must not divide the dataset: `load_training_data` loads the share of this process.
    return keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)


def join_processes():
    """Connect the processes that a launcher has started, if any, before the first computation."""
    import jax

    if jax.distributed.is_initialized():
        return
    counts = [int(os.environ.get(variable) or 1) for variable in PROCESS_COUNTS]
    # Look for torchrun first: if Slurm has started torchrun, the variables of both are set.
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        keras.distribution.initialize(*_torchrun())
    elif max(counts) > 1:
        keras.distribution.initialize()


def _torchrun():
    """Return the address of the first process, the number of processes and this one's rank."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # torchrun uses the port itself.
    return f"{address}:{port + 1}", int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])


def is_first_process():
    """Return whether this process is the first. Only the first process writes files."""
    return process()[0] == 0


def is_spread(variable):
    """Return whether some parts of a variable are only on devices of other processes.

    JAX cannot convert such a variable to a NumPy array.
    """
    if keras.backend.backend() != "jax":
        return False
    return not (variable.value.is_fully_addressable or variable.value.is_fully_replicated)


def to_numpy(variable):
    """Return a variable as a NumPy array.

    A variable that is divided among devices has all its parts on the devices of this process: see
    `_jax_distribution`.
    """
    if not is_spread(variable):
        return ops.convert_to_numpy(variable)
    array = np.empty(variable.shape, variable.value.dtype)
    for part in variable.value.addressable_shards:
        array[part.index] = part.data
    return array


def num_replicas():
    """Return the number of replicas that a batch is divided among, in the scope of a strategy."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy().num_replicas_in_sync
    distribution = keras.distribution.distribution()
    if backend == "torch" or distribution is None:
        return 1
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def sum_over_replicas(values):
    """Sum each tensor of a list over the replicas of a `tf.distribute.Strategy`.

    Return `(sums, num_replicas)`; with one replica or another backend `(values, 1)`.
    """
    if keras.backend.backend() != "tensorflow":
        return values, 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values, 1
    return context.all_reduce("SUM", values), context.num_replicas_in_sync
