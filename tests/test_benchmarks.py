"""The benchmark for GPUs runs on a CPU, too."""

import importlib.util
import json
import pathlib
import runpy

import pytest

from tests.fixtures.commands import run_python

pytestmark = pytest.mark.backends("jax", reason="the benchmark measures JAX")

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
HAS_TIMM = all(importlib.util.find_spec(name) for name in ("torch", "timm"))
# Keras imports TensorFlow where it is installed.
WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules.update(tensorflow=None, tyro=None)
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("gpu", run_name="__main__")
"""
TRACE = """
planes {
  name: "/device:GPU:0"
  lines { name: "Stream #13(Compute)" events { metadata_id: 1 duration_ps: 3000000 } }
  lines { name: "Stream #14(Compute)" events { metadata_id: 2 duration_ps: 1000000 } }
  lines { name: "XLA Ops" events { metadata_id: 1 duration_ps: 3000000 } }
  event_metadata { key: 1 value { id: 1 name: "loop_fusion_12.3" } }
  event_metadata { key: 2 value { id: 2 name: "nvjet_64x8_TNT" } }
}
planes { name: "/host:CPU" }
"""


@pytest.mark.slow
def test_gpu_benchmark_without_tensorflow(tmp_path):
    output = tmp_path / "gpu.json"
    options = "--cpu --models ViT_Ti16 --image-size 32 --batch-sizes 2 4 --steps 1 --runs 1"
    arguments = BENCHMARKS, *options.split(), "--output", output
    run_python(WITHOUT_TENSORFLOW, *arguments, KERAS_BACKEND="jax")
    results = json.loads(output.read_text())
    assert not results["skipped"]
    assert set(results["models"]["ViT_Ti16"]) == {"2", "4"}
    for batch_size, tasks in results["models"]["ViT_Ti16"].items():
        assert ("timm is left out" in tasks) is not HAS_TIMM
        for task, ours in {"forward": "keras_vit", "training": "keras_vit fit"}.items():
            packages = {ours, "timm"} if HAS_TIMM else {ours}
            assert set(tasks[task]) == packages
            assert all(tasks[task][name]["images_per_second"] > 0 for name in packages)
            check_profile(tasks[task][ours]["profile"])
            if HAS_TIMM and batch_size == "2":
                check_profile(tasks[task]["timm"]["profile"])


def check_profile(profile):
    assert profile["milliseconds_per_step"] > 0
    assert 1 <= len(profile["operations"]) <= 10
    assert 0 < sum(operation["share"] for operation in profile["operations"]) <= 1 + 1e-6


def test_profile_of_a_gpu():
    import jax

    profiles = runpy.run_path(str(BENCHMARKS / "profiles.py"))
    trace = jax.profiler.ProfileData.text_proto_to_serialized_xspace(TRACE)
    data = jax.profiler.ProfileData.from_serialized_xspace(trace)
    profile = profiles["profile"](None, lambda _: profiles["recorded_operations"](data), 2)
    assert profile == {
        "milliseconds_per_step": pytest.approx(2e-3),
        "operations": [
            {"name": "loop_fusion", "category": None, "share": pytest.approx(0.75)},
            {"name": "nvjet_64x8_TNT", "category": None, "share": pytest.approx(0.25)},
        ],
    }
