"""The benchmark of trained models: their own sizes, kernels and dtypes."""

import functools

import pytest

import keras_vit
from keras_vit.experiments import benchmark_process
from keras_vit.experiments.benchmark import benchmark
from keras_vit.models.surgery import dense_parts
from tests.fixtures.models import classifier


@pytest.fixture
def run_directory(tmp_path):
    """A run of images of 24 pixels; its best model is in int8 and bfloat16, a layer is frozen."""
    model = classifier(image_size=24, dtype="mixed_bfloat16")
    keras_vit.freeze_blocks(model, 1)
    model = keras_vit.quantize(model, "int8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    model.save(tmp_path / "run" / "best.keras")
    return str(tmp_path / "run")


@pytest.mark.slow
def test_a_trained_model(run_directory):
    """Its own size and kernels are measured, unless it is trained or gets another dtype."""
    make = functools.partial(benchmark_process.build_or_load, run_directory)
    own, trained, changed = (
        make(None, "forward", None),
        make(None, "training", None),
        make(48, "forward", "float32"),
    )
    modes = [{part.quantization_mode for part in dense_parts(m)} - {None} for m in (own, trained)]
    assert modes == [{"int8"}, set()]
    assert (own.input_shape[1], own.output_shape[1], trained.output_shape[1]) == (24, 3, 1000)
    assert changed.input_shape[1] == 48
    dtypes = [m.get_layer("block_0").compute_dtype for m in (own, trained, changed)]
    assert dtypes == ["bfloat16", "bfloat16", "float32"]
    benchmark_process.make_step(trained, "training", 1)
    assert len(trained.trainable_variables) == len(trained.variables)
    measured = benchmark_process.measure(run_directory, None, "forward", None, 1, 0.01)
    assert measured[-1] == "int8_from_mixed_bfloat16"
    options = {"batch_sizes": (1,), "tasks": ("training",), "seconds": 0.01}
    (cost,) = benchmark([run_directory], **options)
    assert (cost.model, cost.image_size) == (run_directory, 24)
    assert cost.points[0][1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("task", ["forward", "training"])
def test_a_model_of_any_size_and_four_channels_is_measured(task, tmp_path):
    model = keras_vit.resize(classifier(image_size=16, image_channels=4))
    model.save(tmp_path / "any.keras")
    measured = benchmark_process.measure(str(tmp_path / "any.keras"), 24, task, None, 1, 0.01)
    assert measured[-2] == 24


@pytest.mark.slow
def test_the_size_of_wide_images_is_that_of_squares_with_as_many_pixels(tmp_path):
    classifier(image_size=(8, 32)).save(tmp_path / "wide.keras")
    path = str(tmp_path / "wide.keras")
    assert benchmark_process.measure(path, None, "forward", None, 1, 0.01)[-2] == 16
