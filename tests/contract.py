"""What every layer and every model of the package keeps to, on every backend."""

import inspect

import keras
import numpy as np
from keras import ops

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def check_layer(layer_class, arguments, input_shapes, output_shape, num_weights, tmp_path):
    """Config, shapes, dtype policies, serialisation and training of a layer.

    `arguments` gives every constructor argument a value that is not its default; `input_shapes`
    are without the batch.
    """
    inputs = [np.random.default_rng(0).normal(size=(2, *s)).astype("float32") for s in input_shapes]
    check_config(layer_class, arguments)
    check_shapes(layer_class(**arguments), inputs, output_shape, num_weights)
    for policy in POLICIES:
        check_policy(layer_class(**arguments, dtype=policy), inputs, policy)
    model = one_layer_model(layer_class(**arguments, name="layer"), input_shapes)
    randomise(model)
    check_saving(model, inputs, tmp_path)
    check_training(model, inputs)


def check_model(model, tmp_path):
    """Serialisation, outputs and training of a model."""
    images = np.random.default_rng(0).normal(size=(2, *model.input_shape[1:])).astype("float32")
    copy = model.__class__.from_config(model.get_config())
    assert [v.path for v in copy.weights] == [v.path for v in model.weights]
    assert [tuple(v.shape) for v in copy.weights] == [tuple(v.shape) for v in model.weights]
    assert keras.backend.standardize_dtype(model(images).dtype) == "float32"
    randomise(model)
    check_saving(model, [images], tmp_path)
    check_training(model, [images])


def check_config(layer_class, arguments):
    own = constructor_arguments(layer_class)
    assert set(arguments) == own, "the contract test must set every constructor argument"
    layer = layer_class(**arguments, name="layer", trainable=False, dtype="mixed_bfloat16")
    config = layer.get_config()
    inherited = {"name", "trainable", "dtype"} if own else parameters(keras.layers.Layer)
    if issubclass(layer_class, keras.layers.Conv2D):
        inherited |= parameters(keras.layers.Conv2D)
    assert set(config) == own | inherited
    copy = layer_class.from_config(config)
    assert copy.get_config() == config
    assert {name: getattr(copy, name) for name in own} == {
        name: getattr(layer, name) for name in own
    }


def constructor_arguments(layer_class):
    return parameters(layer_class) if "__init__" in vars(layer_class) else set()


def parameters(layer_class):
    _, *signature = inspect.signature(layer_class.__init__).parameters.values()
    return {p.name for p in signature if p.kind != p.VAR_KEYWORD}


def check_shapes(layer, inputs, output_shape, num_weights):
    symbolic = layer(*[keras.KerasTensor((None, *x.shape[1:])) for x in inputs])
    assert tuple(symbolic.shape) == (None, *output_shape)
    assert tuple(layer(*inputs).shape) == (2, *output_shape)
    assert len(layer.weights) == num_weights


def check_policy(layer, inputs, policy):
    compute_dtype = policy.removeprefix("mixed_")
    outputs = layer(*inputs)
    assert keras.backend.standardize_dtype(outputs.dtype) == compute_dtype
    assert all(weight.dtype == "float32" for weight in layer.weights)
    assert np.isfinite(to_numpy(outputs)).all()
    symbolic = layer(*[keras.KerasTensor((None, *x.shape[1:])) for x in inputs])
    assert symbolic.dtype == compute_dtype


def one_layer_model(layer, input_shapes):
    inputs = [keras.Input(shape) for shape in input_shapes]
    return keras.Model(inputs if len(inputs) > 1 else inputs[0], layer(*inputs))


def check_saving(model, inputs, tmp_path):
    """A reloaded model has the same weights and gives the same bits."""
    path = tmp_path / f"{model.name}.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    inputs = inputs if len(inputs) > 1 else inputs[0]
    for old, new in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new.value), to_numpy(old.value))
    np.testing.assert_array_equal(
        to_numpy(loaded(inputs, training=False)), to_numpy(model(inputs, training=False))
    )


def randomise(model):
    """No weight at zero: zeros stop the gradient of what is before them, and equal other zeros."""
    for index, weight in enumerate(model.trainable_weights):
        rng = np.random.default_rng(index)
        values = rng.normal(size=weight.shape, scale=0.1).astype("float32")
        weight.assign(values + 1 if weight.name == "gamma" else values)


def check_training(model, inputs):
    """One step moves every weight that the output depends on, and stays finite."""
    if not model.trainable_weights:
        return
    before = [to_numpy(weight.value) for weight in model.trainable_weights]
    inputs = inputs if len(inputs) > 1 else inputs[0]
    outputs = to_numpy(model(inputs, training=False))
    targets = np.random.default_rng(2).normal(size=outputs.shape).astype("float32")
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    # Made while TensorFlow traces the first step, its variables would have it traced twice.
    model.optimizer.build(model.trainable_variables)
    history = model.fit(inputs, targets, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for weight, old in zip(model.trainable_weights, before, strict=True):
        new = to_numpy(weight.value)
        assert np.isfinite(new).all()
        if weight.path.endswith("key/bias"):
            # The softmax takes the same off every key: the true gradient is zero.
            continue
        assert not np.array_equal(new, old), f"{weight.path} was not trained"


def to_numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))
