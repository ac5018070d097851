"""Measure forward passes and training steps on an accelerator: keras_vit on JAX, and timm.

    python benchmarks/accelerator.py
    python benchmarks/accelerator.py --cpu --models ViT_Ti16 --image-size 32 --batch-size 2

A run is a number of steps on one batch that is already on the device, and waits for the device
once, after the last step. Training is measured with `fit`, with a step of the same model written by
hand in JAX, and with a loop over timm's model. A forward pass is measured without `predict`, which
copies all logits to the host. On a GPU, timm's model runs under `torch.compile`. The packages take
turns. MFU is the share of the device's peak that the matrix products and convolutions use.
TensorFlow is not needed.
"""

import dataclasses
import functools
import json
import operator
import os
import pathlib
import statistics

import tyro
from peers import timm_module
from throughput import RESULTS, measure, versions

TIMM = {
    "ViT_Ti16": "vit_tiny_patch16_224",
    "ViT_B16": "vit_base_patch16_224",
    "ViT_L16": "vit_large_patch16_224",
    "BiT_R50x1": "resnetv2_50x1_bit",
}
# Part of the device's name -> dense bfloat16 FLOPs per second, from the vendor's data sheets.
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12}
LEARNING_RATE = 0.01
NUM_CLASSES = 1000
# timm has the erf GELU.
VIT_OPTIONS = {
    "keras_vit": {"activation": "gelu"},
    "keras_vit explicit": {"activation": "gelu", "attention_path": "explicit"},
}


@dataclasses.dataclass
class Benchmark:
    """Compare forward passes and training steps on a device, in bfloat16."""

    models: tuple[str, ...] = ("ViT_B16", "ViT_L16", "BiT_R50x1")
    """Names of builders."""
    image_size: int = 224
    """Side of the square images."""
    batch_size: int = 128
    """Images in a step."""
    steps: int = 20
    """Steps in a run."""
    runs: int = 10
    """Number of measured runs of each package and task."""
    cpu: bool = False
    """Whether to measure a CPU, if JAX finds no accelerator."""
    output: pathlib.Path | None = None
    """JSON file to write; by default results/accelerator.json."""


def our_forward(model, images, steps):
    """Return a function that runs `steps` forward passes."""
    import jax

    from keras_vit.models.inference import for_inference

    folded = for_inference(model)
    state = values_of(folded)

    @jax.jit
    def forward(state, images):
        return folded.stateless_call(*state, images, training=False)[0]

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


def our_jit(model, images, labels, steps):
    """Return a function that runs `steps` training steps written by hand."""
    import jax

    def loss_of(trainable, others, images, labels):
        logits, others = model.stateless_call(trainable, others, images, training=True)
        logs = jax.nn.log_softmax(logits)
        return -jax.numpy.take_along_axis(logs, labels[:, None], axis=1).mean(), others

    # Images and labels are arguments: XLA would compute with constants in advance.
    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(trainable, others, images, labels):
        gradients, others = jax.grad(loss_of, has_aux=True)(trainable, others, images, labels)
        pairs = zip(trainable, gradients, strict=True)
        return [value - LEARNING_RATE * gradient for value, gradient in pairs], others

    state = values_of(model)

    def run():
        for _ in range(steps):
            state[:] = step(*state, images, labels)
        jax.block_until_ready(state[0][-1])

    return run


def values_of(model):
    """Return copies of the values of the trainable and of the non-trainable variables."""
    import jax

    # A training step deletes the buffers that it replaces.
    variables = model.trainable_variables, model.non_trainable_variables
    return [[jax.numpy.copy(v.value) for v in group] for group in variables]


def timm_runs(name, options):
    """Return functions that run timm's forward passes and training steps."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = {} if name.startswith("BiT") else {"img_size": options.image_size}
    module = timm_module(TIMM[name], **sizes).to(device, memory_format=torch.channels_last)
    shape = (options.batch_size, 3, options.image_size, options.image_size)
    images = (torch.rand(shape, device=device) * 2 - 1).to(memory_format=torch.channels_last)
    labels = torch.randint(0, NUM_CLASSES, (options.batch_size,), device=device)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    called = torch.compile(module) if device == "cuda" else module

    def wait():
        if device == "cuda":
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

    return forward, training


def compare(name, options):
    """Measure one model and return its results by task and package."""
    import jax

    import keras_vit

    build = functools.partial(getattr(keras_vit, name), NUM_CLASSES, options.image_size)
    variants = VIT_OPTIONS if name.startswith("ViT") else {"keras_vit": {}}
    keys = jax.random.split(jax.random.key(0))
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    images = jax.random.uniform(keys[0], shape, minval=-1)
    labels = jax.random.randint(keys[1], (options.batch_size,), 0, NUM_CLASSES)
    forward, training = {}, {}
    for variant, settings in variants.items():
        model = build(**settings)
        forward[variant] = our_forward(model, images, options.steps)
        training[f"{variant} jax.jit"] = our_jit(model, images, labels, options.steps)
        training[f"{variant} fit"] = our_fit(model, images, labels, options.steps)
    try:
        forward["timm"], training["timm"] = timm_runs(name, options)
    except ImportError as error:
        print(f"timm is left out: {error}")
    return {
        "forward": report(name, "forward", measure(forward, operator.call, options.runs), options),
        "training": report(
            name, "training", measure(training, operator.call, options.runs), options
        ),
    }


def report(name, task, seconds, options):
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
        speed = options.batch_size * options.steps / statistics.median(times)
        results[package] = {"images_per_second": speed, "mfu": peak and speed * flops / peak}
        share = f"MFU {speed * flops / peak:.1%}" if peak else f"{speed * flops / 1e12:.2f} TFLOP/s"
        line = f"{name:9}  {task:8}  {package:26} {speed:9.1f} images/s, {share}"
        if "timm" in seconds and package != "timm":
            ratios = [their / our for our, their in zip(times, seconds["timm"], strict=True)]
            spread = [statistics.median(ratios), min(ratios), max(ratios)]
            results[package]["ratio to timm"] = spread
            line += ", {:.2f} times as fast as timm ({:.2f} to {:.2f})".format(*spread)
        print(line)
    return results


def main():
    """Measure and report."""
    options = tyro.cli(Benchmark)
    os.environ["KERAS_BACKEND"] = "jax"
    # Leave memory of the device to torch.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16")
    results = {
        "device": jax.devices()[0].device_kind,
        "versions": versions("jax", "torch"),
        "options": vars(options),
    }
    if jax.default_backend() == "cpu" and not options.cpu:
        print("Skipped: JAX finds no accelerator. --cpu measures the CPU.")
        return
    print(f"Device: {results['device']}")
    for name in options.models:
        results[name] = compare(name, options)
        keras.utils.clear_session()
    output = options.output or RESULTS / "accelerator.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2, default=str) + "\n")
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
