"""The supported versions, each in an environment of its own.

`make matrix` runs them all, `nox --session "matrix(jax newest)"` one.
"""

import os

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
    session.install("--quiet", *pins, ".", "pytest", "pytest-xdist", "hypothesis", "pillow")
    session.run("pip", "list", "--format=freeze", external=False)
    marks = " and ".join(f"not {mark}" for mark in OTHERS)
    session.run(
        *("python", "-m", "pytest", "-n", "2", "--dist", "loadfile", "-m", marks),
        *(session.posargs or TESTED),
        # LLVM does not make small things faster on JAX.
        env={**ENV, "KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
    )
