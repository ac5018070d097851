"""Optimizers of recipes, compared with a run of the original, optax and Keras."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.checkpoints import from_checkpoint
from keras_vit.models import vision_transformer
from keras_vit.training.optimizers import SGD, AdamW, learning_rate_schedule, make_optimizer
from keras_vit.training.recipe import KERAS_OPTIMIZERS, PAPER_OPTIMIZERS, RECIPES
from tests.fixtures.contract import to_numpy
from tests.fixtures.reference import case_model, case_outputs
from tests.fixtures.small_runs import small_fit, small_model, small_recipe
from tests.fixtures.stopped import assert_same_variables, stopped
from tests.fixtures.tiny import TINY, images

RUN = "x4_finetune_sgd_f32_momentum"
SMALL = {"image_size": 24, "batch_size": 8, "learning_rate": 0.02, "warmup_steps": 3, "steps": 12}
FINETUNING = dataclasses.replace(RECIPES["finetune"], **SMALL, accumulation_steps=2)


@pytest.fixture(scope="module")
def run():
    """Return the original's run, and our model and history on its batches."""
    expected = case_outputs(RUN)
    model = case_model(RUN)
    model.compile(
        make_optimizer(FINETUNING, model, FINETUNING.steps),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    pixels = (expected["images"].astype("float32") - 127.5) / 127.5
    picked = zip(expected["picks"], expected["labels"], strict=True)
    halves = (slice(0, 4), slice(4, 8))
    batches = ((pixels[p[half]], labels[half]) for p, labels in picked for half in halves)
    observer = Observer()
    # An epoch's loss is the mean of its steps: each is an epoch.
    options = {"callbacks": [observer], "shuffle": False, "verbose": 0}
    model.fit(batches, steps_per_epoch=2, epochs=FINETUNING.steps, **options)
    return expected, model, observer.seen


class Observer(keras.callbacks.Callback):
    """Record what the original's run records of each step."""

    def on_train_begin(self, logs=None):
        self.seen = {"loss": [], "lr": [], "grad_norm": []}

    def on_epoch_begin(self, epoch, logs=None):
        self.seen["lr"].append(to_numpy(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch, logs=None):
        self.seen["loss"].append(logs["loss"])
        self.seen["grad_norm"].append(to_numpy(self.model.optimizer.gradient_norm.value))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loss", "lr", "grad_norm"])
def test_steps_are_the_originals(name, run):
    expected, _, seen = run
    relative = {"loss": 0, "lr": 1e-6, "grad_norm": 1e-5}[name]
    absolute = {"loss": 1e-5, "lr": 0, "grad_norm": 1e-5}[name]
    np.testing.assert_allclose(seen[name], expected[name], rtol=relative, atol=absolute)


@pytest.mark.slow
def test_trained_weights_are_the_originals(run, tmp_path):
    expected, model, _ = run
    arrays = {k.removeprefix("final/"): v for k, v in expected.items() if k.startswith("final/")}
    np.savez(tmp_path / "final.npz", **arrays)
    original = from_checkpoint(tmp_path / "final.npz", num_heads=4)
    for ours, theirs in zip(model.weights, original.weights, strict=True):
        assert ours.path == theirs.path
        np.testing.assert_allclose(
            to_numpy(ours.value), to_numpy(theirs.value), rtol=0, atol=1e-5, err_msg=ours.path
        )


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_momentum_in_bfloat16_as_compiled_optax(kind):
    """As the original runs it: the product with the decay is not rounded before the sum."""
    optax = pytest.importorskip("optax", reason="optax is installed with JAX")
    import jax

    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(30, 64)).astype("float32")
    theirs = {
        SGD: optax.trace(0.9, accumulator_dtype="bfloat16"),
        AdamW: optax.scale_by_adam(mu_dtype="bfloat16"),
    }[kind]
    state, expected = theirs.init(gradients[0]), np.zeros(64, "float32")
    update = jax.jit(theirs.update)
    for gradient in gradients:
        direction, state = update(gradient, state)
        expected -= 0.1 * np.asarray(direction)
    variable = keras.Variable(np.zeros(64, "float32"), name="bias")
    optimizer = kind(0.1, momentum_dtype="bfloat16")
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
    np.testing.assert_allclose(to_numpy(variable), expected, rtol=0, atol=2e-6)
    momenta = [v for v in optimizer.variables if "trace" in v.path or "mean" in v.path]
    assert {momentum.dtype for momentum in momenta} == {"bfloat16"}


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
def test_weight_decay_is_of_kernels_alone(optimizer):
    changes = {"weight_decay": 0.5, "learning_rate": 0.1, "warmup_steps": 0}
    recipe = dataclasses.replace(RECIPES["digits_pretrain"], optimizer=optimizer, **changes)
    model = small_model(recipe)
    model.get_layer("head").kernel.assign(images(8, 3))
    before = {v.path: to_numpy(v.value) for v in model.trainable_variables}
    # Without gradients the decay is all that moves a variable.
    zeros = [ops.zeros(v.shape) for v in model.trainable_variables]
    make_optimizer(recipe, model, 100).apply(zeros, model.trainable_variables)
    for variable in model.trainable_variables:
        factor = 1 - 0.1 * 0.5 * variable.path.endswith("kernel")
        expected = factor * before[variable.path]
        np.testing.assert_allclose(to_numpy(variable.value), expected, rtol=1e-6, atol=1e-9)


def classes_of_keras():
    wrappers = {"lossscaleoptimizer", "multioptimizer", "optimizermap", "optimizer"}
    found = vars(keras.optimizers).values()
    kinds = [kind for kind in found if isinstance(kind, type)]
    return {kind.__name__.lower(): kind for kind in kinds if kind.__name__.lower() not in wrappers}


def test_a_recipe_takes_every_optimizer_of_keras():
    assert {*KERAS_OPTIMIZERS, *PAPER_OPTIMIZERS} == {*classes_of_keras()}


# On the other backends two, with steps of their own, stand for all.
QUICK = KERAS_OPTIMIZERS if keras.backend.backend() == "tensorflow" else ("muon", "nadam")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_an_optimizer_of_keras_computes_as_keras(name):
    """Without what recipes add: three updates from the same weights."""
    changes = {"clip_norm": None, "accumulation_steps": 1}
    if name == "ftrl":
        changes["warmup_steps"] = 0
    recipe = dataclasses.replace(FINETUNING, optimizer=name, **changes)
    weights = {}
    for kind in ("ours", "keras"):
        keras.utils.set_random_seed(0)
        model = vision_transformer(**TINY)
        if kind == "ours":
            optimizer = make_optimizer(recipe, model, 10)
        else:
            schedule = learning_rate_schedule("cosine", 0.02, 10, recipe.warmup_steps)
            more = {"adam_weight_decay": 0.0} if name == "muon" else {}
            optimizer = classes_of_keras()[name](schedule, weight_decay=0.0, **more)
        for seed in range(3):
            rng, variables = np.random.default_rng(seed), model.trainable_variables
            gradients = [rng.normal(size=v.shape).astype("float32") for v in variables]
            optimizer.apply([ops.convert_to_tensor(g) for g in gradients], variables)
        weights[kind] = [to_numpy(variable.value) for variable in model.trainable_variables]
    for ours, other in zip(weights["ours"], weights["keras"], strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nadam", pytest.param("muon", marks=pytest.mark.examples)])
def test_averages_and_clipping_of_keras_are_resumed_bit_for_bit(name, tmp_path):
    """Keras would go on from the averages after the first epoch."""
    settings = {"optimizer": name, "ema_momentum": 0.8, "clip_norm": 0.1, "weight_decay": 0.1}
    recipe = small_recipe(**settings, batch_size=16, steps=48, learning_rate=1e-3)

    def begin(workdir):
        keras.utils.set_random_seed(0)
        model = small_model(recipe, dropout=0.1)
        return model, small_fit(tmp_path / workdir, recipe, model, resume=True, save_steps=7)

    whole, expected = begin("whole")
    with stopped(10):
        begin("stopped")
    resumed, history = begin("stopped")
    assert history == expected
    assert_same_variables(resumed.variables, whole.variables, atol=1e-6)
