"""Profile with the backends' profilers: print the slowest operations of a device."""

import collections
import itertools
import pathlib
import re
import tempfile

NUM_OPERATIONS = 10


def profile(run, operations_of, steps):
    """Print and return the operations of a run that take longest.

    Args:
        run: function that runs `steps` steps and waits for the device.
        operations_of: `jax_operations`, `tensorflow_operations` or `torch_operations`.
        steps: number of steps.

    Returns:
        A dictionary with `milliseconds_per_step` of all operations, and `operations` with their
        shares of this time. If the profiler fails, it has only `error`.
    """
    seconds = collections.Counter()
    try:
        for name, category, duration in operations_of(run):
            # XLA and Inductor number operations of the same kind.
            seconds[re.sub(r"([._]\d+)+$", "", name), category] += duration
        total = sum(seconds.values())
        if not total:
            raise ValueError("the profiler recorded no operations of the device")
    # A failing profiler must not end the benchmark.
    except Exception as error:
        print(f"  no profile: {first_line(error)}")
        return {"error": first_line(error)}
    print(f"  share of the {1000 * total / steps:.2f} ms of the operations of a step:")
    operations = []
    for (name, category), duration in seconds.most_common(NUM_OPERATIONS):
        operations.append({"name": name, "category": category, "share": duration / total})
        print(f"  {duration / total:6.1%}  {name[:70]}" + (f" ({category})" if category else ""))
    return {"milliseconds_per_step": 1000 * total / steps, "operations": operations}


def jax_operations(run):
    """Yield the name, the HLO category if it is recorded, and the seconds of each operation."""
    import jax

    settings = jax.profiler.ProfileOptions()
    settings.python_tracer_level = 0
    settings.raise_error_on_start_failure = True
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=settings):
            run()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        yield from recorded_operations(jax.profiler.ProfileData.from_file(str(path)))


def recorded_operations(data):
    """Yield what `jax_operations` yields, from a `jax.profiler.ProfileData`."""
    gpus = [plane for plane in data.planes if plane.name.startswith("/device:GPU")]
    for line in itertools.chain.from_iterable(plane.lines for plane in gpus or data.planes):
        for event in line.events:
            stats = dict(event.stats)
            # Other lines of a GPU, such as "XLA Ops", repeat the kernels of its streams. On a CPU,
            # threads record operations among other events.
            is_operation = line.name.startswith("Stream") if gpus else "hlo_op" in stats
            if is_operation:
                yield event.name, stats.get("hlo_category"), event.duration_ns / 1e9


def tensorflow_operations(run):
    """Yield the kind, `None` and the seconds of each operation on a CPU."""
    import tensorflow as tf
    from jax.profiler import ProfileData

    with tempfile.TemporaryDirectory() as folder:
        # The profilers of TensorFlow and JAX write the same files.
        with tf.profiler.experimental.Profile(folder):
            run()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        data = ProfileData.from_file(str(path))
    for line in itertools.chain.from_iterable(plane.lines for plane in data.planes):
        for event in line.events:
            # "model/block_0/mlp/MatMul:_FusedMatMul"; calls of graphs have a space after the colon.
            if kind := re.fullmatch(r"[^:]+:(\w+)", event.name):
                yield kind[1], None, event.duration_ns / 1e9


def torch_operations(run):
    """Yield the name, `None` and the seconds of each kernel, or without a GPU each operation."""
    import torch
    from torch.profiler import ProfilerActivity

    on_gpu = torch.cuda.is_initialized()
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        run()
    for event in profiler.key_averages():
        if not on_gpu:
            yield event.key, None, event.self_cpu_time_total / 1e6
        elif event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation:
            yield event.key, None, event.self_device_time_total / 1e6


def first_line(error):
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
