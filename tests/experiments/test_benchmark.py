"""The benchmark of a model: what is measured, what stops it, and the command."""

import csv
import functools
import os
import signal

import pytest

import keras_vit
from keras_vit.cli import main
from keras_vit.cli.benchmark import cells
from keras_vit.core.machine import available_memory, peak_memory
from keras_vit.experiments import benchmark as benchmark_module
from keras_vit.experiments import benchmark_process
from keras_vit.experiments.benchmark import Cost, benchmark, estimate_largest_batch
from keras_vit.inspection.figures.charts import draw_costs
from keras_vit.models.surgery import dense_layers
from tests.fixtures.models import classifier

TINY = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2, patch_size=8)"


def costs_of(monkeypatch, speeds, **options):
    """Return the cost of a model whose batches have these speeds, and the sizes that were tried.

    `None` is out of memory.
    """
    tried = []

    def in_process(model, image_size, task, dtype, batch_size, seconds):
        tried.append(batch_size)
        if speeds[batch_size] is None:
            raise MemoryError
        return speeds[batch_size], 100 + batch_size, 2**40, 32, "float32"

    monkeypatch.setattr(benchmark_module, "_in_process", in_process)
    (cost,) = benchmark(["ViT_Ti16"], (32,), tasks=("forward",), **options)
    return cost, tried


def test_batches_grow_until_that_brings_nothing(monkeypatch):
    speeds = {1: 10, 4: 20, 16: 20.1, 64: 30}
    cost, tried = costs_of(monkeypatch, speeds)
    assert tried == [1, 4, 16]
    assert cost.points == ((1, 10, 101), (4, 20, 104), (16, 20.1, 116))
    assert cost.best == (16, 20.1, 116)
    # Batch sizes of one's own are all measured.
    assert costs_of(monkeypatch, speeds, batch_sizes=tuple(speeds))[1] == [1, 4, 16, 64]
    # A step of 100 seconds is the last.
    assert costs_of(monkeypatch, {1: 0.01})[1] == [1]


@pytest.mark.parametrize(
    ("speeds", "options", "largest", "shown"),
    [
        ({1: None}, {}, 0, "0"),
        ({4: None}, {"batch_sizes": (4,)}, None, "?"),
        # The line through the peaks has no end before the batch that did not fit.
        ({1: 5.0, 4: 20.0, 16: None}, {}, 15, "15"),
        ({1: 5.0, 4: None}, {}, None, "?"),
    ],
)
def test_a_batch_that_does_not_fit_is_the_end(speeds, options, largest, shown, monkeypatch):
    cost, _ = costs_of(monkeypatch, speeds, **options)
    assert (cost.largest_batch, cells(cost)[-1]) == (largest, shown)


def test_the_largest_batch_follows_from_the_memory():
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], 1700) == 32
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], 1700, failing=20) == 19
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 500)], 1700) is None
    assert 2**20 < peak_memory() < available_memory()


@pytest.mark.slow
def test_the_command_writes_what_it_measured(tmp_path):
    output = tmp_path / "costs.csv"
    arguments = ["--image-sizes", "16", "--batch-sizes", "1", "3", "--dtype", "mixed_bfloat16"]
    arguments += ["--seconds", "0.01", "--tasks", "training", "--output", str(output)]
    main(["benchmark", TINY, *arguments])
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["batch_size"]) for row in rows] == [(TINY, "1"), (TINY, "3")]
    for row in rows:
        assert float(row["images_per_second"]) > 0
        assert row["dtype"] == "mixed_bfloat16"
        assert 2**20 < int(row["peak_bytes"]) < available_memory()


@pytest.mark.slow
def test_a_process_that_is_killed_lacks_memory(monkeypatch):
    monkeypatch.setattr(benchmark_module, "_measure", _kill)
    (cost,) = benchmark(["ViT_Ti16"], tasks=("forward",))
    assert (cost.largest_batch, cost.points) == (0, ())


def _kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["forward", "training"])
def test_what_is_timed(task, monkeypatch):
    """Each step is one batch of the size."""
    built, batches = benchmark_process.build_or_load(TINY, 16, task, None), []
    method = {"forward": "predict", "training": "fit"}[task]
    whole = getattr(type(built), method)

    def record(self, dataset, **options):
        batches.append([len(batch[0]) for batch in dataset.as_numpy_iterator()])
        return whole(self, dataset, **options)

    monkeypatch.setattr(type(built), method, record)
    step = benchmark_process.make_step(built, task, 3)
    assert benchmark_process.images_per_second(step, 3, seconds=5.0) > 0
    # One to compile, one to choose the number of steps, three runs of them.
    steps = [len(sizes) for sizes in batches]
    assert steps[:2] == [1, 1] and len(steps) == 5 and 1 < steps[2] == steps[3] == steps[4]
    assert {size for sizes in batches for size in sizes} == {3}
    assert task == "forward" or int(built.optimizer.iterations) == sum(steps)


@pytest.mark.slow
def test_a_mistake_is_no_lack_of_memory():
    with pytest.raises(ValueError, match="`image_size` .*20"):
        list(benchmark([TINY], image_sizes=(20,), tasks=("forward",)))


def test_the_figure_draws_models_whatever_fits(tmp_path):
    points = ((1, 10.0, 100), (2, 20.0, 150))
    rows = (
        ("a", 32, points, 100),
        ("a", 64, points, 30),
        ("b", 32, points, None),
        ("c", 32, (), 0),
    )
    costs = [Cost(m, "forward", size, "float32", *found) for m, size, *found in rows]
    draw_costs(costs, tmp_path / "costs.png")
    assert (tmp_path / "costs.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_trained_model_keeps_its_size_and_kernels_unless_it_is_trained_or_changed(tmp_path):
    model = classifier(image_size=24, dtype="mixed_bfloat16")
    keras_vit.freeze_blocks(model, 1)
    (tmp_path / "run.json").write_text("{}")
    keras_vit.quantize(model, "int8").save(tmp_path / "best.keras")
    run_directory = str(tmp_path)
    make = functools.partial(benchmark_process.build_or_load, run_directory)
    own, trained, changed = (
        make(None, "forward", None),
        make(None, "training", None),
        make(48, "forward", "float32"),
    )
    modes = [{part.quantization_mode for part in dense_layers(m)} - {None} for m in (own, trained)]
    assert modes == [{"int8"}, set()]
    assert (own.input_shape[1], own.output_shape[1], trained.output_shape[1]) == (24, 3, 1000)
    assert changed.input_shape[1] == 48
    dtypes = [m.get_layer("block_0").compute_dtype for m in (own, trained, changed)]
    assert dtypes == ["bfloat16", "bfloat16", "float32"]
    benchmark_process.make_step(trained, "training", 1)
    assert len(trained.trainable_variables) == len(trained.variables)
    measured = benchmark_process.measure_speed(run_directory, None, "forward", None, 1, 0.01)
    assert measured[-1] == "int8_from_mixed_bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["forward", "training"])
def test_a_model_of_any_size_and_four_channels_is_measured(task, tmp_path):
    model = keras_vit.resize(classifier(image_size=16, image_channels=4))
    model.save(tmp_path / "any.keras")
    measured = benchmark_process.measure_speed(str(tmp_path / "any.keras"), 24, task, None, 1, 0.01)
    assert measured[-2] == 24


@pytest.mark.slow
def test_the_size_of_wide_images_is_that_of_squares_with_as_many_pixels(tmp_path):
    classifier(image_size=(8, 32)).save(tmp_path / "wide.keras")
    path = str(tmp_path / "wide.keras")
    assert benchmark_process.measure_speed(path, None, "forward", None, 1, 0.01)[-2] == 16
