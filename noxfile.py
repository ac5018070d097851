"""The supported versions, and the wheel with each extra, each in an environment of its own.

`make matrix` runs all versions, `nox --session "matrix(jax newest)"` one; `make extras` all extras,
`nox --session "extras(onnx)"` one.
"""

import os
import pathlib
import tempfile

import nox

ENV = {"TF_CPP_MIN_LOG_LEVEL": "3"}
TORCH = os.environ.get("TORCH", "torch")
OLDEST = ("keras==3.12.0", "numpy==1.26.0", "scipy==1.12.0")
# Python, the backend, and what is pinned besides; pip takes the newest of everything else.
MATRIX = {
    "tensorflow oldest": ("3.11", "tensorflow", (*OLDEST, "tensorflow==2.18.1")),
    "jax oldest": ("3.11", "jax", (*OLDEST, "jax==0.6.2")),
    "torch oldest": ("3.11", "torch", (*OLDEST, TORCH)),
    "tensorflow, Python 3.12": ("3.12", "tensorflow", ()),
    "tensorflow newest": ("3.13", "tensorflow", ()),
    "jax newest": ("3.13", "jax", ("jax",)),
}
# Layers, models, checkpoints, and the core without the tests of training and data, which are of
# TensorFlow's pipelines.
TESTED = ("tests/layers", "tests/models", "tests/checkpoints")
OTHERS = ("slow", "large", "interop", "engines", "examples", "processes", "browser", "demo", "fuzz")


@nox.session(venv_backend="venv")
@nox.parametrize(
    "python, backend, pins",
    [nox.param(*row, id=name) for name, row in MATRIX.items()],
)
def matrix(session, backend, pins):
    """Run the tests of layers, models and checkpoints with some versions."""
    session.install("--quiet", *pins, ".[demo,hub]", "pytest", "pytest-xdist", "hypothesis")
    session.run("pip", "list", "--format=freeze", external=False)
    marks = " and ".join(f"not {mark}" for mark in OTHERS)
    session.run(
        *("python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "-m", marks),
        *(session.posargs or TESTED),
        # LLVM does not make small things faster on JAX.
        env={**ENV, "KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
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
    "none": [PREDICT],
    "jax": [PREDICT],
    "torch": [PREDICT],
    "plots": ["keras-vit inspect model.keras --images photos/cat/a.png --out drawn"],
    "demo": ["keras-vit evaluate model.keras --data digits"],
    # What is on the hub cannot be reached everywhere.
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
    "convert": ["keras-vit convert model.keras written --to huggingface"],
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
