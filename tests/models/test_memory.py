"""Memory: a large model is built once, rematerialised blocks keep little."""

import os
import subprocess
import sys

import keras
import pytest

from keras_vit.evaluation.compute import count_parameters
from keras_vit.models import find_variant

CODE = """
import resource
import sys
import keras
import keras_vit
keras_vit.ViT_Ti16(image_size=32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = getattr(keras_vit, sys.argv[1])()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
# Linux counts in KiB, macOS in bytes.
print((after - before) * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.large
@pytest.mark.parametrize("name", ["ViT_H14", "ViT_g14"])
def test_peak_memory_of_building(name):
    result = subprocess.run(
        [sys.executable, "-c", CODE, name],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    size = 4 * count_parameters(find_variant(name))
    assert int(result.stdout) < 1.5 * size


# `ru_maxrss` would start from the peak of the process that starts this one.
TRAINING_CODE = """
import pathlib
import re
import sys
import keras
import numpy as np
import keras_vit
def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
model = keras_vit.ViT_S16(remat=sys.argv[1] == "True")
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images, labels = np.zeros((16, 224, 224, 3), "float32"), np.zeros(16)
before = peak()
model.train_on_batch(images, labels)
print(peak() - before)
"""


@pytest.mark.large
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow" or sys.platform != "linux",
    reason="on CPUs JAX's XLA undoes it and torch's heap hides it; Linux tells the peak",
)
def test_peak_memory_of_training():
    def peak(remat):
        result = subprocess.run(
            [sys.executable, "-c", TRAINING_CODE, str(remat)],
            env=os.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(result.stdout)

    assert peak(remat=True) < 0.6 * peak(remat=False)
