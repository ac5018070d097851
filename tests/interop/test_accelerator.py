"""The benchmark of accelerators, on a CPU at toy size."""

import json
import os
import subprocess
import sys


def test_the_benchmark_runs_on_a_cpu_without_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('tensorflow is not needed')")
    sizes = ["--image-size", "32", "--batch-size", "2", "--steps", "2", "--runs", "1"]
    output = tmp_path / "accelerator.json"
    command = [sys.executable, "benchmarks/accelerator.py", "--cpu", "--models", "ViT_Ti16"]
    subprocess.run(
        [*command, *sizes, "--output", str(output)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
    )
    results = json.loads(output.read_text())["ViT_Ti16"]
    paths = ("keras_vit", "keras_vit explicit")
    assert set(results["forward"]) == {*paths, "timm"}
    steps = {f"{path} {loop}" for path in paths for loop in ("fit", "jax.jit")}
    assert set(results["training"]) == {*steps, "timm"}
    assert all(row["images_per_second"] > 0 for task in results.values() for row in task.values())
