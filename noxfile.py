"""Everything that is run to develop the package: `.venv/bin/nox --list`, `.venv/bin/nox -s NAME`.

Sessions share the environment of nox, and install into it what they need; those that need other
versions have environments of their own. Times are those of two cores with nothing else to do,
without the installation.
"""

import hashlib
import os
import pathlib
import shutil
import sys
import tempfile

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["test"]

VENV = pathlib.Path(sys.prefix)
# PyTorch's default build for Linux brings several gigabytes of CUDA; this release has a CPU build
# where the package index offers one.
TORCH = os.environ.get("TORCH", "torch")
BACKENDS = (TORCH, "jax", "optax", "--editable", ".[test]")
ENV = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # JAX spends its time on compiling small things: they are kept for the next process.
    "JAX_COMPILATION_CACHE_DIR": str(VENV / "jax-cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# LLVM does not make small things faster on JAX.
JAX = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
# Marks of tests that have sessions of their own, as in setup.cfg.
MARKS = ("large", "interop", "engines", "examples", "processes", "browser", "demo", "fuzz")
OTHERS = " and ".join(f"not {mark}" for mark in MARKS)
# Two processes take one test file after the other. If a worker dies, stop: a new worker would wait
# for its tests for ever. Importing what two folders need takes seconds.
PARALLEL = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")
PARALLEL += ("--ignore", "tests/fuzz", "--ignore", "tests/interop")


BENCHMARKS = """
import_time
start_up --model ViT_B16
start_up --model ViT_L16
loading
loading --variant ViT_L16 --runs 3
input_pipeline
augmentation
throughput --backend tensorflow
throughput --backend tensorflow --dtype mixed_bfloat16
throughput --backend jax
throughput --backend jax --dtype mixed_bfloat16
throughput --backend torch
throughput --backend torch --dtype mixed_bfloat16
throughput --model BiT_R50x1 --backend tensorflow
throughput --model BiT_R50x1 --backend torch
throughput --model R50_B16 --backend torch
operations
run_overhead
training
gpu
pretraining
fewshot
evaluation
serving --model ViT_B16
serving --model R50_B16
serving --model BiT_R50x1
requests_under_load
"""


def install(session, *requirements):
    """Install requirements into the environment of nox, unless that was done before."""
    asked = "\n".join((*requirements, pathlib.Path("setup.cfg").read_text()))
    done = VENV / f".installed-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
    if not done.exists():
        session.run(sys.executable, "-m", "pip", "install", "--quiet", *requirements)
        done.touch()


def run(session, program, *arguments, **env):
    """Run a program of the environment of nox."""
    path = f"{VENV / 'bin'}:{os.environ['PATH']}"
    session.run(VENV / "bin" / program, *arguments, env={**ENV, "PATH": path, **env})


def pytest(session, *arguments, **env):
    """Run tests, with further arguments from the command line of nox."""
    run(session, "python", "-m", "pytest", *arguments, *session.posargs, **env)


@nox.session
def demo(session):
    """Train, evaluate and export a model of digits: 2 minutes."""
    install(session, "--editable", ".[demo]")
    run(session, "keras-vit", "quickstart")


@nox.session
def test(session):
    """Run the default tests on TensorFlow: 2 minutes."""
    install(session, "--editable", ".[test]")
    pytest(session, *PARALLEL)


@nox.session
def slow(session):
    """Run the tests of a second and more, trainings, exports and commands: half an hour."""
    install(session, "--editable", ".[test]")
    pytest(session, *PARALLEL, "-m", f"slow and {OTHERS}")


@nox.session
def jax(session):
    """Run the default tests that are not of one backend on JAX: 3 minutes."""
    install(session, *BACKENDS)
    pytest(session, *PARALLEL, "tests", **JAX)


@nox.session
def torch(session):
    """Run the default tests that are not of one backend on torch: 1 minute."""
    install(session, *BACKENDS)
    pytest(session, *PARALLEL, "tests", KERAS_BACKEND="torch")


@nox.session
def backends(session):
    """Run all tests and examples of docstrings on JAX and on torch: 25 minutes."""
    install(session, *BACKENDS)
    pytest(session, *PARALLEL, "-m", OTHERS, **JAX)
    pytest(session, *PARALLEL, "-m", OTHERS, KERAS_BACKEND="torch")
    pytest(session, "-n", "2", "-m", "processes", **JAX)


@nox.session
def processes(session):
    """Train on several devices of one machine: 1 minute."""
    install(session, *BACKENDS)
    pytest(session, "-n", "2", "-m", "processes")


@nox.session
def fuzz(session):
    """Read 11,000 damaged and malicious files: half a minute; FUZZ_CASES=100000 takes 4."""
    install(session, *BACKENDS)
    pytest(session, "-n", "2", "-m", "fuzz", "tests/fuzz")


@nox.session
def quickstart(session):
    """Run the main job and check its accuracies: 2 to 4 minutes."""
    install(session, "--editable", ".[test]")
    pytest(session, "-s", "-m", "demo", "tests/cli/test_quickstart.py")


@nox.session
def examples(session):
    """Run the examples, the Python of the pages, and commands from end to end: 5 minutes."""
    install(session, "--editable", ".[test]")
    pytest(session, "-n", "2", "-m", "examples", "tests")


@nox.session
def large(session):
    """Run models of gigabytes, every recipe, and runs that are killed again and again: an hour."""
    install(session, *BACKENDS)
    pytest(session, "-n", "2", "-m", "large")
    distributed = "training/test_distribution", "evaluation/test_distributed_evaluation"
    files = [f"tests/{name}.py" for name in distributed]
    pytest(session, "-n", "2", "-m", "large", *files, KERAS_BACKEND="jax")


@nox.session
def interop(session):
    """Compare files and models with the real transformers, timm and others: 6 minutes."""
    install(session, *BACKENDS)
    install(session, "transformers", "keras-hub", "pyyaml", "peft", "msgpack", "ftfy")
    install(session, "--no-deps", "timm", "flax", "open_clip_torch")
    install(session, "vit-keras; python_version < '3.12'", "opencv-python-headless")
    # torchvision has no build for CPUs alone, and cannot be imported as it is.
    install(session, "--no-deps", "--upgrade", "--target", str(VENV / "torchvision"), "torchvision")
    # Version 5 of transformers has no TensorFlow.
    old = VENV.with_name(f"{VENV.name}-transformers4")
    if not old.exists():
        run(session, "python", "-m", "venv", old)
        packages = "transformers<5", "tensorflow<2.20", "tf-keras<2.20", "pillow"
        session.run(old / "bin" / "pip", "install", "--quiet", *packages)
    pytest(session, "-m", "interop", "tests/interop")
    towers = [str(path) for path in sorted(pathlib.Path("tests/interop").rglob("*_towers.py"))]
    for backend in ("jax", "torch"):
        pytest(session, "-m", "interop", *towers, KERAS_BACKEND=backend)


@nox.session
def engines(session):
    """Predict on Ray and on Spark, which needs Java: 2 minutes."""
    install(session, "--editable", ".[test,ray,spark]")
    pytest(session, "-m", "engines", "tests/distributed")


@nox.session
def browser(session):
    """Open pages in Chromium, which needs chromedriver: 20 seconds."""
    install(session, "selenium", "--editable", ".[test]")
    pytest(session, "-m", "browser", "tests/inspection")


@nox.session
def lint(session):
    """Check the style, the format and the types of the examples."""
    install(session, "ruff==0.17.5", "mypy", "--editable", ".[test]")
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy")


@nox.session
def docs(session):
    """Write the tables of README.md and docs/ from the package and the benchmarks."""
    install(session, "--editable", ".[test]")
    run(session, "python", "docs/tables.py")


@nox.session
def site(session):
    """Build the web site in site/: 1 minute."""
    install(session, "--editable", ".[docs]")
    run(session, "mkdocs", "build", "--strict")


@nox.session
def dist(session):
    """Build the wheel and the source distribution in dist/: 1 minute."""
    install(session, "build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    run(session, "python", "-m", "build")
    run(session, "twine", "check", "--strict", *map(str, pathlib.Path("dist").glob("*")))


@nox.session
def audit(session):
    """Print known vulnerabilities of the dependencies, and their licenses."""
    install(session, "pip-audit", "pip-licenses", "--editable", ".[demo]")
    codes = {"success_codes": (0, 1)}
    session.run(VENV / "bin" / "pip-audit", "--local", "--skip-editable", **codes)
    run(session, "pip-licenses", "--from=mixed", "--order=license")


@nox.session
def real(session):
    """Write a trained DINOv2 to build/real, and compare it with ONNX Runtime: 5 minutes."""
    install(session, *BACKENDS, "scikit-image")
    run(session, "python", "benchmarks/real.py", "build/real")


@nox.session
def bench(session):
    """Measure speed and memory, next to other packages: hours."""
    install(
        session, *BACKENDS, "matplotlib", "transformers", "keras-hub", "vit-keras", "zeromodels"
    )
    install(session, "--no-deps", "timm")
    for line in BENCHMARKS.strip().splitlines():
        script, *arguments = line.split()
        run(session, "python", f"benchmarks/{script}.py", *arguments)


@nox.session(venv_backend="venv")
def no_tensorflow(session):
    """Run the core of the installed package where there is no TensorFlow: 1 minute."""
    core = ("keras", "jax", "scipy", "filelock", "lazy_loader", "safetensors", "tqdm", "wrapt")
    session.install("--quiet", *core, "pytest")
    session.install("--quiet", "--no-deps", ".")
    options = "--noconftest -c /dev/null --rootdir .ci --import-mode importlib -p no:cacheprovider"
    file = ".ci/test_without_tensorflow.py"
    session.run("pytest", "--disable-warnings", *options.split(), file, env={**ENV, **JAX})


OLDEST = ("keras==3.12.0", "numpy==1.26.0", "scipy==1.12.0")
# Python, the backend, and what is pinned besides; pip takes the newest of everything else. (JAX
# 0.4.38 now and then gives NaN for a gradient in float16 on CPUs.)
MATRIX = {
    "tensorflow oldest": ("3.11", "tensorflow", (*OLDEST, "tensorflow==2.18.1")),
    "jax oldest": ("3.11", "jax", (*OLDEST, "jax==0.6.2")),
    "torch oldest": ("3.11", "torch", (*OLDEST, TORCH)),
    "tensorflow, Python 3.12": ("3.12", "tensorflow", ()),
    "tensorflow newest": ("3.13", "tensorflow", ()),
    "jax newest": ("3.13", "jax", ("jax",)),
}
# Tests of training and data are of TensorFlow's pipelines.
TESTED = ("tests/layers", "tests/models", "tests/checkpoints")


@nox.session(venv_backend="venv")
@nox.parametrize(
    "python, backend, pins",
    [nox.param(*row, id=name) for name, row in MATRIX.items()],
)
def matrix(session, backend, pins):
    """Run the tests of layers, models and checkpoints with one set of versions: 5 minutes."""
    session.install("--quiet", *pins, ".[demo,hub]", "pytest", "pytest-xdist", "hypothesis")
    session.run("pip", "list", "--format=freeze", external=False)
    session.run(
        *(
            "python",
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "-m",
            f"{OTHERS} and not slow",
        ),
        *(session.posargs or TESTED),
        env={**ENV, **JAX, "KERAS_BACKEND": backend},
    )


# What needs an extra, on a folder of photographs and a model.
PREDICT = "keras-vit predict model.keras photos"
SPARK = """
import pyspark.sql
from keras_vit.distributed.spark import predict
spark = pyspark.sql.SparkSession.builder.master("local[1]").getOrCreate()
images = spark.read.format("binaryFile").option("recursiveFileLookup", True).load("photos")
print(predict(images, "model.keras").collect())
"""
EXTRAS = {
    "none": [PREDICT, "keras-vit convert model.keras written --to huggingface"],
    "jax": [PREDICT],
    "torch": [PREDICT],
    "plots": ["keras-vit inspect model.keras --images photos/cat/a.png --out drawn"],
    "demo": ["keras-vit evaluate model.keras --data digits"],
    # What is on the hub cannot be reached everywhere.
    "keras-cv": [("python", "-c", "import keras_cv; keras_cv.layers.GridMask()"), PREDICT],
    "images": [("python", "-c", "import pillow_heif, pillow_jxl"), PREDICT],
    "hub": [("python", "-c", "import huggingface_hub, keras_vit.checkpoints.catalog.hub")],
    "dedup": ["keras-vit deduplicate folder:photos --output exclude.txt"],
    "serving": ["keras-vit export model.keras served --warmup-batch-sizes 1"],
    **{
        name: [
            f"keras-vit export model.keras exported --format {name}",
            "keras-vit predict exported photos",
        ]
        for name in ("onnx", "litert", "openvino")
    },
    "ray": [f"{PREDICT} --engine ray --output found"],
    "spark": [("python", "-c", SPARK)],
}
MAKE_FILES = """
import tensorflow as tf
import keras_vit
for name in ("cat", "dog"):
    picture = tf.cast(tf.random.uniform((30, 40, 3), 0, 256, "int32"), "uint8")
    tf.io.write_file(f"photos/{name}/a.png", tf.io.encode_png(picture))
keras_vit.ViT_Ti16(num_classes=10, image_size=32).save("model.keras")
"""


@nox.session(venv_backend="venv")
@nox.parametrize("extra", list(EXTRAS), ids=list(EXTRAS))
def extras(session, extra):
    """Install the wheel with one extra and nothing else, and run what needs it."""
    (wheel,) = pathlib.Path("dist").absolute().glob("*.whl")
    pins = [TORCH] if extra == "torch" else []
    session.install("--quiet", *pins, f"{wheel}[{extra}]" if extra != "none" else str(wheel))
    env = {**ENV, "KERAS_BACKEND": extra if extra in ("jax", "torch") else "tensorflow"}
    # Ray refuses a folder for temporary files with a long path.
    session.chdir(tempfile.mkdtemp())
    session.run("python", "-c", MAKE_FILES, env=env)
    for command in EXTRAS[extra]:
        session.run(*(command.split() if isinstance(command, str) else command), env=env)
