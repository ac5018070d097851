"""The benchmark of a model: what is measured, what stops it, and the command."""

import csv
import os
import signal

import pytest

from keras_vit.cli import main
from keras_vit.cli.benchmark import cells
from keras_vit.core.process import available_memory, peak_memory
from keras_vit.experiments import benchmark as benchmark_module
from keras_vit.experiments import benchmark_process
from keras_vit.experiments.benchmark import Cost, benchmark, estimate_largest_batch
from keras_vit.inspection.figures.charts import draw_costs

TINY = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2, patch_size=8)"


def costs_of(monkeypatch, speeds, **options):
    """Return the cost of a model whose batches have these speeds, and the sizes that were tried.

    `None` is out of memory.
    """
    tried = []

    def in_process(model, image_size, task, dtype, batch_size, seconds):
        tried.append(batch_size)
        speed = speeds(batch_size) if callable(speeds) else speeds[batch_size]
        if speed is None:
            raise MemoryError
        return speed, 100 + batch_size, 2**40, 32, "float32"

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


def test_a_slow_step_is_the_last(monkeypatch):
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
    assert estimate_largest_batch([(8, 1.0, 500)], 1700) is None
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 500)], 1700) is None
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], None) is None
    assert 2**20 < peak_memory() < available_memory()


@pytest.mark.slow
def test_the_command_writes_what_it_measured(tmp_path, capfd):
    output = tmp_path / "costs.csv"
    arguments = ["--image-sizes", "16", "--batch-sizes", "1", "3", "--dtype", "mixed_bfloat16"]
    arguments += ["--seconds", "0.01", "--tasks", "training", "--output", str(output)]
    main(["benchmark", TINY, *arguments])
    assert "training  mixed_bfloat16" in capfd.readouterr().out
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
