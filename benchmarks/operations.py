"""Profile a model: print the slowest operations of a forward pass and of a training step.

    python benchmarks/operations.py --backend torch --dtype mixed_bfloat16
    python benchmarks/operations.py --model BiT_R50x1

The times come from the backend's profiler, summed over threads and without nested operations.
"""

import dataclasses
import os
from typing import Literal

import tyro
from peers import compiled
from profiles import jax_operations, profile, tensorflow_operations, torch_operations

OPERATIONS = {
    "tensorflow": tensorflow_operations,
    "jax": jax_operations,
    "torch": torch_operations,
}


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


def main():
    """Profile and print."""
    options = tyro.cli(Profile)
    os.environ["KERAS_BACKEND"] = options.backend
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.models.unused_tokens import without_unused_tokens

    keras.config.set_dtype_policy(options.dtype)
    model = getattr(keras_vit, options.model)(image_size=options.image_size)
    copy, trained = keras_vit.for_inference(model), compiled(without_unused_tokens(model))
    shape = (options.batch_size, options.image_size, options.image_size, 3)
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    labels = np.arange(options.batch_size)
    steps = {
        "forward": lambda: copy.predict_on_batch(images),
        "training": lambda: trained.train_on_batch(images, labels),
    }
    for task, step in steps.items():
        for _ in range(2):
            step()
        print(f"\n{options.model}, {options.backend}, {options.dtype}, {task}")
        profile(step, OPERATIONS[options.backend], steps=1)


if __name__ == "__main__":
    main()
