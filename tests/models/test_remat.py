"""Rematerialised blocks: the same training, and nothing else changed."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.models import replace_head, resize, vision_transformer
from tests.fixtures.contract import randomise, to_numpy
from tests.fixtures.models import ABLATIONS
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.backends("tensorflow", "torch", reason="JAX compiles for seconds")

BACKEND = keras.backend.backend()
DROPPING = {"dropout": 0.5, "attention_dropout": 0.5, "stochastic_depth": 0.5}
# JAX without jit takes ten seconds; torch's compiler needs one of C++ at hand.
CASES = [pytest.param(BACKEND == "jax", {}, marks=pytest.mark.large), (BACKEND == "jax", DROPPING)]
if BACKEND == "tensorflow":
    # XLA compiles for seconds.
    CASES.append(pytest.param(True, DROPPING, marks=pytest.mark.large))
CASES += [(BACKEND == "jax", ABLATIONS[name]) for name in ABLATIONS]


def trained(jit_compile, **options):
    """Losses, weights and states after a few steps from the same start."""
    keras.utils.set_random_seed(0)
    model = vision_transformer(**TINY, **options)
    randomise(model)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    targets = np.random.default_rng(1).normal(size=(12, 3)).astype("float32")
    history = model.fit(images(12, 16, 16, 3), targets, batch_size=4, shuffle=False, verbose=0)
    variables = model.trainable_variables + model.non_trainable_variables
    return [history.history["loss"], *(ops.convert_to_numpy(v.value) for v in variables)]


def count_recomputed(monkeypatch):
    """Lists the calls of rematerialised functions, those for the gradients among them."""
    calls, remat = [], keras.remat

    def counting_remat(function):
        def counted(*inputs):
            calls.append(1)
            return function(*inputs)

        return remat(counted)

    monkeypatch.setattr(keras, "remat", counting_remat)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize(("jit_compile", "options"), CASES, ids=str)
def test_training_is_the_same(jit_compile, options, monkeypatch):
    with monkeypatch.context() as context:
        if BACKEND == "torch" and options == DROPPING:
            # There Keras drops by torch's state if no seed was drawn: other values, as random.
            context.setattr(keras, "remat", lambda function: function)
            expected = trained(jit_compile, remat=True, **options)
        else:
            expected = trained(jit_compile, **options)
    calls = count_recomputed(monkeypatch)
    actual = trained(jit_compile, remat=True, **options)
    # JAX traces a block once, and computes the trace again.
    assert len(calls) >= (1 if BACKEND == "jax" else 2) * TINY["depth"]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_it_is_no_architecture(tmp_path):
    path = tmp_path / "weights.weights.h5"
    model = vision_transformer(**TINY, **DROPPING)
    randomise(model)
    model.save_weights(path)
    other = vision_transformer(**TINY, **DROPPING, remat=True)
    other.load_weights(path)
    np.testing.assert_array_equal(
        to_numpy(other(images(2, 16, 16, 3))), to_numpy(model(images(2, 16, 16, 3)))
    )
    for copy in (replace_head(other, 5), resize(other, 32)):
        assert copy.get_layer("block_1").remat


def test_a_file_does_not_tell():
    path = "tests/data/reference/a_vit_token.ckpt.npz"
    assert keras_vit.from_checkpoint(path, remat=True).get_layer("block_0").remat
    assert not keras_vit.from_checkpoint(path).get_layer("block_0").remat
