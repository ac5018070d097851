"""Model FLOPs utilisation of training on a GPU, ours on JAX beside timm's, for `training.py`."""

import statistics

from peers import compiled, timm_module
from throughput import measure

NAMES = {"ViT_B16": "vit_base_patch16_224", "ViT_L16": "vit_large_patch16_224"}
# Dense bfloat16 FLOPs a second by the vendor's data sheets, and a part of the device's name.
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12}


def compare(backend, batch_size, image_size, runs):
    """Images a second and MFU of the two models, or nothing and a line that says why."""
    if backend != "jax":
        print("accelerator: skipped, it is measured with --backend jax")
        return {}
    import jax
    import keras

    if jax.default_backend() != "gpu":
        print("accelerator: skipped, JAX finds no GPU")
        return {}
    device = jax.devices()[0].device_kind
    results = {"device": device}
    keras.config.set_dtype_policy("mixed_bfloat16")
    for name in NAMES:
        steps = {"keras_vit": our_step(name, batch_size, image_size)}
        try:
            steps["timm"] = timm_step(name, batch_size, image_size)
        except (ImportError, RuntimeError) as error:
            print(f"timm is left out: {error}")
        seconds = measure(steps, lambda step: step(), runs)
        results[name] = {
            package: report(name, package, device, statistics.median(times), batch_size, image_size)
            for package, times in seconds.items()
        }
    return results


def our_step(name, batch_size, image_size):
    """A step of our model, with timm's erf GELU, on images that are on the device already."""
    import jax

    import keras_vit

    model = compiled(getattr(keras_vit, name)(image_size=image_size, activation="gelu"))
    keys = jax.random.split(jax.random.key(0))
    images = jax.random.uniform(keys[0], (batch_size, image_size, image_size, 3), minval=-1)
    labels = jax.random.randint(keys[1], (batch_size,), 0, 1000)
    return lambda: model.train_on_batch(images, labels)


def timm_step(name, batch_size, image_size):
    """A step of timm's model under `torch.compile`, in bfloat16 likewise."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    module = timm_module(NAMES[name], img_size=image_size).cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    forward = torch.compile(module)
    images = torch.rand(batch_size, 3, image_size, image_size, device="cuda") * 2 - 1
    labels = torch.randint(0, 1000, (batch_size,), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = forward(images)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        # Waits for the device, as Keras does for the loss that it returns.
        return loss.item()

    return step


def report(name, package, device, seconds, batch_size, image_size):
    """Prints and returns images a second, and the share of the device's FLOPs that they need."""
    from keras_vit.evaluation.compute import count_flops
    from keras_vit.models import find_variant

    # The gradients of a matrix product are two more of its size.
    flops = 3 * count_flops(find_variant(name), image_size=image_size) * batch_size / seconds
    peak = next((peak for part, peak in PEAK_FLOPS.items() if part in device), None)
    mfu = flops / peak if peak else None
    share = f"MFU {mfu:.1%}" if mfu else f"{flops / 1e12:.1f} TFLOP/s, peak unknown"
    print(f"{name:8}  {package:10} {batch_size / seconds:8.1f} images/s, {share}, on {device}")
    return {"images_per_second": batch_size / seconds, "flops_per_second": flops, "mfu": mfu}
