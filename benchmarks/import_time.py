"""Measure the time of `import keras_vit` on top of `import keras`, in fresh processes.

python benchmarks/import_time.py
"""

import statistics
import subprocess
import sys

RUNS = 5
CODE = """
import time
start = time.perf_counter()
import keras
middle = time.perf_counter()
import keras_vit
print(middle - start, time.perf_counter() - middle)
"""


def measure():
    """Return the seconds of the two imports, one after the other in a new process."""
    process = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
    )
    return [float(seconds) for seconds in process.stdout.split()]


if __name__ == "__main__":
    keras_seconds, ours = zip(*(measure() for _ in range(RUNS)), strict=True)
    print(f"import keras:     {statistics.median(keras_seconds) * 1000:6.0f} ms")
    print(f"import keras_vit: {statistics.median(ours) * 1000:6.0f} ms more")
