"""Profile a model: print the time of each operation in a forward pass and in a training step.

    python benchmarks/operations.py --backend torch --dtype mixed_bfloat16
    python benchmarks/operations.py --model BiT_R50x1

The times come from the backend's profiler, summed over threads and without nested operations. The
table is in Markdown.
"""

import collections
import dataclasses
import os
import pathlib
import re
import tempfile
from typing import Literal

import tyro
from peers import compiled

# Events of the profilers that are not operations.
NOT_OPERATIONS = (
    "Thread",
    "Eager",
    "Run",
    "Process",
    "Wait",
    "Execute",
    "Start",
    "end",
    "Iterator",
)


@dataclasses.dataclass
class Profile:
    """Print the slowest operations."""

    model: str = "ViT_B16"
    """Our builder."""
    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras backend."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Dtype policy."""
    image_size: int = 224
    """Side of the square images."""
    batch_size: int = 8
    """Images in a step."""
    rows: int = 10
    """Number of operations to print."""


def profile(step, backend):
    """Return the milliseconds of each operation in a step."""
    if backend == "torch":
        return profile_torch(step)
    # The profilers of TensorFlow and JAX write the same files.
    from jax.profiler import ProfileData

    start, stop = profiler(backend)
    with tempfile.TemporaryDirectory() as directory:
        start(directory)
        step()
        stop()
        (file,) = pathlib.Path(directory).rglob("*.xplane.pb")
        events = [
            event
            for plane in ProfileData.from_file(str(file)).planes
            for line in plane.lines
            for event in line.events
        ]
    times = collections.Counter()
    for event in events:
        if kind := kind_of(event.name, backend):
            times[kind] += event.duration_ns / 1e6
    return times


def profiler(backend):
    """Return the functions that start and stop the backend's profiler."""
    if backend == "jax":
        import jax

        return jax.profiler.start_trace, jax.profiler.stop_trace
    import tensorflow as tf

    return tf.profiler.experimental.start, tf.profiler.experimental.stop


def kind_of(name, backend):
    """Return the operation of a profiler's event, or `None` for other events."""
    if backend == "tensorflow":
        # "model/block_0/mlp/MatMul:_FusedMatMul"
        _, is_operation, kind = name.rpartition(":")
        # " __inference_train_function" contains the other operations.
        is_operation = is_operation and not kind.startswith(" ")
    else:
        # "dot_add_fusion.12"
        is_operation, kind = re.fullmatch(r"[a-z][\w-]*(\.[\d.a-z]+)?", name), name.split(".")[0]
    return kind if is_operation and not kind.startswith(NOT_OPERATIONS) else None


def profile_torch(step):
    """Return the milliseconds of each of torch's operations in a step."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CPU]) as recorded:
        step()
    rows = recorded.key_averages()
    return collections.Counter({row.key: row.self_cpu_time_total / 1e3 for row in rows})


def main():
    """Profile and print."""
    options = tyro.cli(Profile)
    os.environ["KERAS_BACKEND"] = options.backend
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.cli.command import markdown_table
    from keras_vit.models.inference import for_inference

    keras.config.set_dtype_policy(options.dtype)
    model = compiled(getattr(keras_vit, options.model)(image_size=options.image_size))
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    labels = np.arange(options.batch_size)
    folded = for_inference(model)
    steps = {
        "forward": lambda: folded.predict_on_batch(images),
        "training": lambda: model.train_on_batch(images, labels),
    }
    for task, step in steps.items():
        for _ in range(2):
            step()
        times = profile(step, options.backend)
        total = sum(times.values())
        rows = [
            [f"`{kind}`", f"{spent:.1f}", f"{spent / total:.1%}"]
            for kind, spent in times.most_common(options.rows)
        ]
        print(f"\n{options.model}, {options.backend}, {options.dtype}, {task}: {total:.0f} ms\n")
        print(markdown_table(["operation", "ms", "share"], rows))


if __name__ == "__main__":
    main()
