"""Evaluation by several processes, with a share of the images each.

Only the JAX backend has several processes. Each evaluates its share on its own device, so that
batches need not have one size; the results are gathered at the end. Features of a model that is
being trained are computed by all devices of its strategy together.
"""

import functools

import keras
import numpy as np

from keras_vit.data.processes import process
from keras_vit.models.inference import for_inference


def logits_function(model):
    """Return a function from images to logits that a process can call by itself.

    Each process must have the whole model, as after `data_parallel` training and after loading.
    """
    if process()[1] == 1:
        return for_inference(model).predict_on_batch
    import jax

    # All processes must compute at once with an array that they share; this part of it is on a
    # device of this process.
    variables = [
        [variable.value.addressable_data(0) for variable in group]
        for group in (model.trainable_variables, model.non_trainable_variables)
    ]

    @jax.jit
    def predict(variables, images):
        logits, _ = model.stateless_call(*variables, images, training=False)
        return logits

    return lambda images: predict(variables, images)


def outputs_function(model):
    """Return a function from a dataset of batches of images to the outputs of a model for them.

    All devices of the strategy that the model was built under compute together, with the weights
    that the model has at that time. Each process must call the function with the same images, and
    gets all outputs, an array with one row per image. The model may be divided among devices.
    """
    distribution = keras.distribution.distribution()
    if distribution is None:
        # TensorFlow's strategies divide batches themselves.
        return lambda images: model.predict(images, verbose=0)
    import jax

    mesh = distribution.device_mesh.backend_mesh
    num_replicas = mesh.shape[distribution.batch_dim_name]
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    @functools.partial(jax.jit, out_shardings=everywhere)
    def predict(variables, batch):
        outputs, _ = model.stateless_call(*variables, batch, training=False)
        return outputs

    def predict_all(images):
        groups = (model.trainable_variables, model.non_trainable_variables)
        variables = [[variable.value for variable in group] for group in groups]
        size, outputs = 0, []
        for batch in images.as_numpy_iterator():
            # JAX would compile again for a smaller batch.
            size = max(size, -(-len(batch) // num_replicas) * num_replicas)
            filled = np.resize(batch, (size, *batch.shape[1:]))
            layout = distribution.get_data_layout(filled.shape).backend_layout
            shared = jax.make_array_from_callback(filled.shape, layout, filled.__getitem__)
            outputs.append(np.asarray(predict(variables, shared))[: len(batch)])
        return np.concatenate(outputs)

    return predict_all


def gather(columns):
    """Concatenate the arrays of all processes in their order; each must call this function.

    `columns` is a dictionary of arrays of one length, which may differ between processes, with at
    most 32 bits per number.
    """
    if process()[1] == 1:
        return columns
    from jax.experimental.multihost_utils import process_allgather

    lengths = process_allgather(np.array(len(next(iter(columns.values())))))
    filled = {
        name: np.concatenate(
            [column, np.zeros((lengths.max() - len(column), *column.shape[1:]), column.dtype)]
        )
        for name, column in columns.items()
    }
    return {
        name: np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])
        for name, rows in process_allgather(filled).items()
    }
