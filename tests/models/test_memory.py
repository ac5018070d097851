"""Building a large model holds it once."""

import os
import subprocess
import sys

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
