"""Measure forward passes and training steps on a GPU: keras_vit on JAX, and timm.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --cpu --models ViT_Ti16 --image-size 32 --batch-sizes 2 --steps 1

A run is a number of steps on one batch that is already on the device, and waits for the device
once, after the last step. The packages take turns. On a GPU, timm's model runs under
`torch.compile`. A forward pass is measured without `predict`, which copies all logits to the host.
MFU is the share of the device's peak that matrix products and convolutions use. It counts those of
the whole model, although our last block computes only the class token.

The script is for a GPU that is available for a few minutes. It writes the results after each job,
and starts no job after `--minutes`. It needs JAX and what keras_vit imports with it, but neither
TensorFlow nor tyro; timm is left out if it or torch is missing.
"""

import argparse
import functools
import itertools
import json
import operator
import os
import pathlib
import statistics
import time

from peers import timm_module
from profiles import first_line, jax_operations, profile, torch_operations
from throughput import RESULTS, measure, versions

TIMM = {
    "ViT_Ti16": "vit_tiny_patch16_224",
    "ViT_B16": "vit_base_patch16_224",
    "ViT_L16": "vit_large_patch16_224",
}
# Part of the device's name -> dense bfloat16 FLOPs per second, from the vendor's data sheets.
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12}
LEARNING_RATE = 0.01
NUM_CLASSES = 1000


def parse_options():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--models", nargs="+", choices=TIMM, default=["ViT_B16", "ViT_L16"])
    add("--batch-sizes", nargs="+", type=int, default=[128, 256])
    add("--image-size", type=int, default=224)
    add("--steps", type=int, default=10, help="steps in a run")
    add("--runs", type=int, default=5, help="measured runs of each package and task")
    add("--minutes", type=float, default=8, help="start nothing new after this time")
    paths = ("fused", "explicit")
    add("--attention-paths", nargs="+", choices=paths, default=["fused"], help="paths of our ViTs")
    add("--cpu", action="store_true", help="measure the CPU")
    add("--output", type=pathlib.Path, default=RESULTS / "gpu.json")
    return parser.parse_args()


def our_forward(model, images, steps):
    """Return a function that runs `steps` forward passes."""
    import jax

    from keras_vit.models.inference import for_inference

    copy = for_inference(model)
    state = values_of(copy)

    @jax.jit
    def forward(state, images):
        return copy.stateless_call(*state, images, training=False)[0]

    def run():
        for _ in range(steps):
            logits = forward(state, images)
        jax.block_until_ready(logits)

    return run


def our_fit(model, images, labels, steps):
    """Return a function that runs `fit` on `steps` batches."""
    import jax
    import keras

    class DeviceBatches(keras.utils.PyDataset):
        """The same batch, repeated."""

        def __len__(self):
            return steps

        def __getitem__(self, index):
            return images, labels

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(LEARNING_RATE), loss)
    batches = DeviceBatches()

    def run():
        model.fit(batches, verbose=0)
        jax.block_until_ready(model.trainable_variables[-1].value)

    return run


def values_of(model):
    """Return copies of the values of the trainable and of the other variables."""
    import jax

    # A training step deletes the buffers that it replaces.
    variables = model.trainable_variables, model.non_trainable_variables
    return [[jax.numpy.copy(v.value) for v in group] for group in variables]


def our_runs(name, batch_size, options):
    """Return functions that run our forward passes and training steps, by task and package."""
    import jax

    import keras_vit
    from keras_vit.models.unused_tokens import without_unused_tokens

    keys = jax.random.split(jax.random.key(0))
    shape = (batch_size, options.image_size, options.image_size, 3)
    images = jax.random.uniform(keys[0], shape, minval=-1)
    labels = jax.random.randint(keys[1], (batch_size,), 0, NUM_CLASSES)
    build = functools.partial(getattr(keras_vit, name), NUM_CLASSES, options.image_size)
    forward, training = {}, {}
    for path in options.attention_paths:
        # timm has the erf GELU.
        model = build(activation="gelu", attention_path=path)
        package = "keras_vit" if path == "fused" else f"keras_vit {path}"
        forward[package] = our_forward(model, images, options.steps)
        # As in `keras_vit.training.train`.
        fitted = without_unused_tokens(model)
        training[f"{package} fit"] = our_fit(fitted, images, labels, options.steps)
    return {"forward": forward, "training": training}


def timm_runs(name, batch_size, options):
    """Return functions that run timm's forward passes and training steps, by task."""
    import torch

    device = "cpu" if options.cpu else "cuda"
    if not options.cpu and not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    # torch stops compiling after a number of recompilations.
    torch.compiler.reset()
    # Release the memory of the previous model, for JAX.
    torch.cuda.empty_cache()
    module = timm_module(TIMM[name], img_size=options.image_size)
    module.to(device, memory_format=torch.channels_last)
    shape = (batch_size, 3, options.image_size, options.image_size)
    images = (torch.rand(shape, device=device) * 2 - 1).to(memory_format=torch.channels_last)
    labels = torch.randint(0, NUM_CLASSES, (batch_size,), device=device)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    called = module if options.cpu else torch.compile(module, dynamic=False)

    def wait():
        if not options.cpu:
            torch.cuda.synchronize()

    def forward():
        module.eval()
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16):
            for _ in range(options.steps):
                called(images)
        wait()

    def training():
        module.train()
        for _ in range(options.steps):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                logits = called(images)
            torch.nn.functional.cross_entropy(logits.float(), labels).backward()
            optimizer.step()
        wait()

    return {"forward": forward, "training": training}


def warm_timm_runs(name, batch_size, results, options):
    """Return `timm_runs` after a first run; if there is an error, record it and return `{}`."""
    try:
        runs = timm_runs(name, batch_size, options)
        for run in runs.values():
            run()
    except (ImportError, RuntimeError) as error:
        results["timm is left out"] = first_line(error)
        print(f"{name:9}  timm is left out: {first_line(error)}")
        return {}
    return runs


def compare(name, batch_size, results, options):
    """Measure a model; record speeds, and profiles of ours, by task and package."""
    runs = our_runs(name, batch_size, options)
    for task, run in warm_timm_runs(name, batch_size, results, options).items():
        runs[task]["timm"] = run
    for task, functions in runs.items():
        seconds = measure(functions, operator.call, options.runs)
        results[task] = report(name, batch_size, task, seconds, options)
        for package, run in functions.items():
            if package != "timm":
                print(f"{name:9}  {task:8}  {package:26} {batch_size:4}")
                results[task][package]["profile"] = profile(run, jax_operations, options.steps)


def profile_timm(name, batch_size, results, options):
    """Add timm's profiles to the results of a model."""
    for task, run in warm_timm_runs(name, batch_size, results, options).items():
        print(f"{name:9}  {task:8}  {'timm':26} {batch_size:4}")
        figures = results.setdefault(task, {}).setdefault("timm", {})
        figures["profile"] = profile(run, torch_operations, options.steps)


def report(name, batch_size, task, seconds, options):
    """Print and return images per second and MFU of each package, and ratios to timm."""
    import jax

    from keras_vit.evaluation.costs import count_flops
    from keras_vit.models import find_variant

    device = jax.devices()[0].device_kind
    peak = next((flops for part, flops in PEAK_FLOPS.items() if part in device), None)
    variant = find_variant(name)
    flops = count_flops(variant, image_size=options.image_size, with_padding=False)
    # The gradients of a matrix product are two more products of its size.
    flops *= 3 if task == "training" else 1
    results = {}
    for package, times in seconds.items():
        speed = batch_size * options.steps / statistics.median(times)
        results[package] = {"images_per_second": speed, "mfu": peak and speed * flops / peak}
        share = f"MFU {speed * flops / peak:.1%}" if peak else f"{speed * flops / 1e12:.2f} TFLOP/s"
        line = f"{name:9}  {task:8}  {package:26} {batch_size:4} {speed:9.1f} images/s, {share}"
        if "timm" in seconds and package != "timm":
            ratios = [their / our for our, their in zip(times, seconds["timm"], strict=True)]
            spread = [statistics.median(ratios), min(ratios), max(ratios)]
            results[package]["ratio to timm"] = spread
            line += ", {:.2f} times as fast as timm ({:.2f} to {:.2f})".format(*spread)
        print(line)
    return results


def jobs_of(results, options):
    """Return a function for each part of the benchmark, by label."""
    jobs = {}
    for batch_size, name in itertools.product(options.batch_sizes, options.models):
        part = results.setdefault(name, {}).setdefault(batch_size, {})
        job = functools.partial(compare, name, batch_size, part, options)
        jobs[f"{name} in batches of {batch_size}"] = job
    # Last, because torch's profiler holds CUPTI, which JAX's needs, until the process ends.
    batch_size = options.batch_sizes[0]
    for name in options.models:
        job = functools.partial(profile_timm, name, batch_size, results[name][batch_size], options)
        jobs[f"profile of timm's {name} in batches of {batch_size}"] = job
    return jobs


def run_jobs(jobs, results, deadline, options):
    """Run jobs until the deadline, and write the results after each of them."""
    import keras

    for label, job in jobs.items():
        try:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{options.minutes:g} minutes are over")
            job()
        # Errors of JAX and of torch, such as those for too little memory, are RuntimeErrors.
        except (RuntimeError, TimeoutError) as error:
            print(f"Skipped: {label}: {first_line(error)}")
            results["skipped"][label] = first_line(error)
        keras.utils.clear_session()
        write(results, options.output)


def write(results, output):
    """Write the results to a new file, and then replace the old one."""
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_suffix(".new")
    new.write_text(json.dumps(results, indent=2, default=str) + "\n")
    new.replace(output)


def main():
    """Measure and report."""
    options = parse_options()
    deadline = time.monotonic() + 60 * options.minutes
    os.environ["KERAS_BACKEND"] = "jax"
    if options.cpu:
        os.environ["JAX_PLATFORMS"] = "cpu"
    # Leave memory of the device to torch.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import keras

    if jax.default_backend() == "cpu" and not options.cpu:
        print("Skipped: JAX finds no GPU. --cpu measures the CPU.")
        return
    keras.config.set_dtype_policy("mixed_bfloat16")
    results = {
        "device": jax.devices()[0].device_kind,
        "versions": versions("jax", "torch"),
        "options": vars(options),
        "skipped": {},
        "models": {},
    }
    print(f"Device: {results['device']}")
    run_jobs(jobs_of(results["models"], options), results, deadline, options)
    print(f"Written to {options.output}")


if __name__ == "__main__":
    main()
