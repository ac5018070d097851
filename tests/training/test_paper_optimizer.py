"""The base class of the optimizers: accumulation as in optax, averages, layer-wise decay."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import vision_transformer
from keras_vit.models.masked_patches import masked_patch_predictor
from keras_vit.training.callbacks import assign_averages
from keras_vit.training.optimizers import SGD, AdamW, layer_distances, learning_rate_schedule
from tests.fixtures.contract import to_numpy
from tests.fixtures.tiny import TINY

DECAY = 0.1


def kernel_and_bias():
    rng = np.random.default_rng(0)
    values = {"kernel": rng.normal(size=(16, 8)), "bias": rng.normal(size=8)}
    return {name: value.astype("float32") for name, value in values.items()}


def gradients(count):
    """Some that are clipped, some that are not, and some of float32's noise."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        scale = 10.0 ** rng.uniform(-9, 1)
        yield {
            name: (rng.normal(size=value.shape) * scale).astype("float32")
            for name, value in kernel_and_bias().items()
        }


def weights_after(optimizer, count):
    """Return the variables of the optimizer after each of a number of batches."""
    variables = [keras.Variable(value, name=name) for name, value in kernel_and_bias().items()]
    optimizer.build(variables)
    for batch in gradients(count):
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in batch.values()], variables)
        yield [np.array(to_numpy(v.value)) for v in variables]


@pytest.mark.parametrize("accumulation_steps", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", [SGD, AdamW])
def test_updates_are_optaxs(optimizer, accumulation_steps):
    jax = pytest.importorskip("jax")
    optax = pytest.importorskip("optax", reason="optax is installed with JAX")
    scale = {SGD: optax.trace(0.9), AdamW: optax.scale_by_adam()}[optimizer]
    num_updates = 48 // accumulation_steps
    theirs = optax.MultiSteps(
        optax.chain(
            optax.clip_by_global_norm(1.0),
            scale,
            optax.add_decayed_weights(DECAY, mask={"kernel": True, "bias": False}),
            optax.scale_by_learning_rate(
                optax.warmup_cosine_decay_schedule(0.0, 0.01, 3, num_updates)
            ),
        ),
        every_k_schedule=accumulation_steps,
    )
    rate = learning_rate_schedule("cosine", 0.01, num_updates, 3)
    options = {"weight_decay": DECAY, "clip_norm": 1.0, "accumulation_steps": accumulation_steps}
    ours = weights_after(optimizer(learning_rate=rate, **options), 48)
    weights = kernel_and_bias()
    state, update = theirs.init(weights), jax.jit(theirs.update)
    for batch, found in zip(gradients(48), ours, strict=True):
        updates, state = update(batch, state, weights)
        weights = optax.apply_updates(weights, updates)
        for value, name in zip(found, ("kernel", "bias"), strict=True):
            np.testing.assert_allclose(value, weights[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_averages_begin_with_the_first_update(accumulation_steps):
    options = {"ema_momentum": 0.8, "accumulation_steps": accumulation_steps}
    optimizer = SGD(learning_rate=0.1, **options)
    averages = None
    for batch, weights in enumerate(weights_after(optimizer, 10), start=1):
        if batch % accumulation_steps:
            continue
        if averages is None:
            averages = weights
        averages = [0.8 * a + 0.2 * w for a, w in zip(averages, weights, strict=True)]
        for ours, expected in zip(optimizer.averages, averages, strict=True):
            np.testing.assert_allclose(to_numpy(ours.value), expected, rtol=0, atol=1e-6)


def test_averages_before_the_first_update_are_the_weights():
    model = vision_transformer(**{**TINY, "depth": 1})
    before = model.get_weights()
    model.compile(SGD(0.1, ema_momentum=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    assign_averages(model)
    for ours, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, expected)


# Of two blocks, under a decay of a half: the start of a variable's path and its factor.
PATCHES = {"patch_embedding": 0.125, "position_embedding": 0.125, "block_0": 0.25, "block_1": 0.5}
TOKEN = {**PATCHES, "class_token": 0.125, "encoder_norm": 1.0, "head": 1.0}
GAP = {"fc_norm": 1.0, "pre_logits": 1.0, "head": 1.0}
RESNET = dict.fromkeys(("root_conv", "root_norm", "stage_1_unit_1", "stage_2_unit_1"), 0.125)
FACTORS = {
    "gap": ({"pooling": "gap", "fc_norm": True, "representation_size": 4}, {**PATCHES, **GAP}),
    "deit": ({"distillation_token": True}, {**TOKEN, "distillation_token": 0.125}),
    "clip": (
        {"pre_norm": True, "projection_dim": 4},
        {**TOKEN, "pre_norm": 0.125, "projection": 1.0},
    ),
    "every_layer": (
        {"position_placement": "every_layer"},
        {**TOKEN, "position_embedding_1": 0.5},
    ),
    "hybrid": (
        {"resnet_stages": (1, 1), "patch_size": 1, "image_size": 32},
        {**TOKEN, **RESNET},
    ),
}


def factors_by_layer(model):
    factors = [0.5**distance for distance in layer_distances(model.trainable_variables)]
    paths = [variable.path for variable in model.trainable_variables]
    return {path.partition("/")[0]: f for path, f in zip(paths, factors, strict=True)}


@pytest.mark.parametrize("name", FACTORS)
def test_a_layer_learns_by_its_distance_from_the_head(name):
    options, expected = FACTORS[name]
    assert factors_by_layer(vision_transformer(**{**TINY, **options})) == expected


def test_the_layers_of_a_predictor_of_patches_learn_by_their_distance():
    factors = factors_by_layer(masked_patch_predictor(vision_transformer(**TINY)))
    own = {"corrupt_patches": 0.125, "patch_head": 1.0}
    assert {**factors, "head": 1.0} == {**TOKEN, **own}


def test_a_new_decoder_learns_at_the_full_rate():
    maps = keras_vit.backbone(vision_transformer(**TINY), ("encoder_norm",), "blocks")
    factors = factors_by_layer(keras_vit.segmenter(maps, num_classes=3, head="mask"))
    new = ("projection", "class_embeddings", "decoder_block_0", "decoder_norm", "head")
    assert {factors[name] for name in new} == {1.0}
    assert (factors["block_0"], factors["class_token"]) == (0.25, 0.125)


@pytest.mark.parametrize("optimizer", [SGD, AdamW])
def test_a_layer_goes_by_its_factor(optimizer):
    """A step without momentum or with Adam's first, in which all go equally far."""
    model = vision_transformer(**TINY)
    before = {v.path: np.array(to_numpy(v.value)) for v in model.trainable_variables}
    ones = [keras.ops.ones(v.shape) for v in model.trainable_variables]
    optimizer(learning_rate=0.01, layer_decay=0.5).apply(ones, model.trainable_variables)
    for variable in model.trainable_variables:
        step = before[variable.path] - to_numpy(variable.value)
        factor = TOKEN[variable.path.partition("/")[0]]
        np.testing.assert_allclose(step, 0.01 * factor, rtol=0, atol=1e-6, err_msg=variable.path)


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(AdamW, marks=pytest.mark.slow)])
def test_blocks_are_unfrozen_from_the_last(optimizer):
    """The head is trained from the start, the embeddings after the blocks."""
    model = vision_transformer(**TINY)
    before = {v.path: np.array(to_numpy(v.value)) for v in model.trainable_variables}
    ones = [keras.ops.ones(v.shape) for v in model.trainable_variables]
    optimizer = optimizer(learning_rate=0.01, unfreeze_steps=2)
    groups = [{"head", "encoder_norm"}, {"block_1"}, {"block_0"}]
    groups += [{"patch_embedding", "class_token", "position_embedding"}]
    for step in range(8):
        optimizer.apply(ones, model.trainable_variables)
        moved = {
            variable.path.partition("/")[0]
            for variable in model.trainable_variables
            if not np.array_equal(before[variable.path], to_numpy(variable.value))
        }
        assert moved == set().union(*groups[: step // 2 + 1])


@pytest.mark.slow
def test_a_saved_model_is_trained_on(tmp_path):
    """With a float for a learning rate, as who does without recipes writes it."""
    model = vision_transformer(**{**TINY, "depth": 1})
    model.compile(
        AdamW(0.01, clip_norm=1.0, ema_momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(4, *model.input_shape[1:])).astype("float32"), np.arange(4) % 2
    model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    assert copy.optimizer.get_config() == model.optimizer.get_config()
    for each in (model, copy):
        each.optimizer.learning_rate = 0.02
        each.train_on_batch(*batch)
    variables = (m.weights + m.optimizer.variables for m in (model, copy))
    for ours, theirs in zip(*variables, strict=True):
        np.testing.assert_allclose(to_numpy(ours.value), to_numpy(theirs.value), atol=1e-6)
