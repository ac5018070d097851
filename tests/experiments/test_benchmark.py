"""The benchmark of a model: what is measured, what stops it, and the command."""

import csv
import multiprocessing
import types

import pytest

from keras_vit.cli import main
from keras_vit.cli.benchmark import cells
from keras_vit.core.process import available_memory, peak_memory
from keras_vit.experiments import benchmark as benchmark_module
from keras_vit.experiments import benchmark_process
from keras_vit.experiments.benchmark import (
    BATCH_SIZES,
    Cost,
    benchmark,
    estimate_largest_batch,
    find_largest,
)
from keras_vit.inspection.figures.charts import draw_costs
from tests.fixtures.commands import error_of
from tests.fixtures.models import classifier

TINY = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2, patch_size=8)"


KINDS = ("point", "failing", "accelerator", "error")


class Connection:
    """Keeps what is sent."""

    def __init__(self):
        self.sent = []

    def send(self, pair):
        self.sent.append(pair)


def run(monkeypatch, speeds, batch_sizes, may_stop=True):
    """Return what a process finds whose batches have these speeds; `None` is out of memory."""

    def time_batch(step, batch_size, seconds):
        if speeds[batch_size] is None:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return speeds[batch_size], 0.1

    monkeypatch.setattr(benchmark_process, "time_batch", time_batch)
    monkeypatch.setattr(benchmark_process, "make_step", lambda *arguments: None)
    monkeypatch.setattr(benchmark_process, "build_or_load", lambda *arguments: classifier())
    connection = Connection()
    options = ("ViT_Ti16", 32, "forward", batch_sizes, may_stop, None, 0.1)
    benchmark_process.run(connection, options)
    found = [(kind, value) for kind, value in connection.sent if kind in KINDS]
    return [(kind, value[:2] if kind == "point" else value) for kind, value in found]


def test_doubling_ends_when_it_brings_nothing(monkeypatch):
    speeds = {1: 10, 2: 20, 4: 20.1, 8: 19, 16: 30}
    found = run(monkeypatch, speeds, tuple(speeds))
    assert [value for _, value in found] == [(1, 10), (2, 20), (4, 20.1), (8, 19)]
    # Batch sizes of one's own are all measured.
    assert len(run(monkeypatch, speeds, tuple(speeds), may_stop=False)) == 5
    assert run(monkeypatch, {1: 10, 2: None}, (1, 2)) == [("point", (1, 10)), ("failing", 2)]


def test_an_accelerator(monkeypatch):
    """Fewer sizes are measured, as each is compiled, until they bring nothing."""
    monkeypatch.setattr(benchmark_process, "accelerator_memory", lambda: (100, 1000))
    speeds = {size: min(size, 16) for size in BATCH_SIZES}
    accelerator, *points = run(monkeypatch, speeds, BATCH_SIZES)
    assert accelerator == ("accelerator", 1000)
    assert [value[0] for _, value in points] == [1, 4, 16, 64, 256]


@pytest.mark.parametrize(
    ("memory", "tried"), [(1000, [719, 808, 898, 988]), (None, [512, 1024, 768, 896, 960])]
)
def test_the_largest_batch_of_an_accelerator_is_tried(memory, tried, monkeypatch):
    """Each try is a process of its own; the memory says where to begin."""

    def measure_in_process(options, show):
        sizes, may_stop = options[3:5]
        if may_stop:
            return {"points": [(256, 1.0, 356)], "accelerator": memory, "image_size": 224}
        asked.extend(sizes)
        if sizes[0] > 1000:
            raise RuntimeError("Measuring ViT_Ti16 (forward) failed with the status 1.")
        return {"points": [(sizes[0], 1.0, 1)] if sizes[0] <= 900 else []}

    asked = []
    monkeypatch.setattr(benchmark_module, "_measure_in_process", measure_in_process)
    (cost,) = benchmark(["ViT_Ti16"], tasks=("forward",))
    assert asked == tried
    assert (cost.largest_batch, cost.is_estimated) == (max(n for n in tried if n <= 900), False)


@pytest.mark.parametrize("limit", [1, 5, 37, 100])
def test_the_largest_batch_is_found_by_trying(limit):
    tried = []

    def fits(batch_size):
        tried.append(batch_size)
        return batch_size <= limit

    assert limit - max(limit // 8, 1) < find_largest(fits, 1) <= limit
    assert len(tried) < 15


def test_the_largest_batch_follows_from_the_memory():
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], 1700) == 32
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], 1700, failing=20) == 19
    assert estimate_largest_batch([(8, 1.0, 500)], 1700) is None
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 500)], 1700) is None
    assert 2**20 < peak_memory() < available_memory()


def test_what_was_measured_is_printed_before_an_error(monkeypatch, capsys):
    def costs(**options):
        yield Cost("ViT_Ti16", 224, "forward", ((1, 5.0, 100),), 7, False)
        raise ValueError("`image_size` must be one. Received: 36")

    monkeypatch.setattr(benchmark_module, "benchmark", costs)
    with pytest.raises(SystemExit):
        main(["benchmark", "ViT_Ti16"])
    printed = capsys.readouterr()
    assert "ViT_Ti16" in printed.out and "forward" in printed.out
    assert printed.err.splitlines()[-1].startswith("keras-vit: error: `image_size`")


@pytest.mark.slow
def test_command(tmp_path, capfd):
    output = tmp_path / "costs.csv"
    arguments = ["--image-sizes", "16", "--batch-sizes", "1", "3", "--dtype", "mixed_bfloat16"]
    arguments += ["--seconds", "0.01", "--tasks", "training", "--output", str(output)]
    main(["benchmark", TINY, *arguments])
    printed = capfd.readouterr()
    assert "images/s" in printed.out and "training  mixed_bfloat16" in printed.out
    assert "oneDNN" not in printed.err
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["batch_size"]) for row in rows] == [(TINY, "1"), (TINY, "3")]
    for row in rows:
        assert float(row["images_per_second"]) > 0
        assert row["dtype"] == "mixed_bfloat16"
        assert 2**20 < int(row["peak_bytes"]) < available_memory()


class Process:
    """Ends at once with a status; the connection was sent some pairs."""

    def __init__(self, sent, status):
        self.sent, self.exitcode = list(sent), status

    def recv(self):
        if self.sent:
            return self.sent.pop(0)
        raise EOFError

    def start(self):
        pass

    join = kill = close = start


def costs_of(process, monkeypatch):
    """Return the costs of a model that a process measures."""
    made = {"Pipe": lambda duplex: (process, process), "Process": lambda **options: process}
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: types.SimpleNamespace(**made))
    return benchmark(["ViT_Ti16"], tasks=("forward",))


@pytest.mark.parametrize(
    ("sent", "status", "largest"),
    [
        ([("failing", 1)], 0, 0),
        ([("failing", 4)], 0, None),
        # Linux has killed the first batch, or the second.
        ([], -9, 0),
        ([("trying", 1), ("point", (1, 5.0, 100)), ("trying", 2)], -9, None),
    ],
)
def test_batches_that_do_not_fit(sent, status, largest, monkeypatch, tmp_path, capsys):
    (cost,) = costs_of(Process(sent, status), monkeypatch)
    assert cost.largest_batch == largest
    assert cost.best == dict(sent).get("point")
    assert cells(cost)[-1] == ("?" if largest is None else "0")
    draw_costs([cost], tmp_path / "costs.png")


def test_a_process_that_fails_is_an_error(monkeypatch):
    process = Process([("point", (1, 5.0, 100))], 1)
    with pytest.raises(RuntimeError, match=r"ViT_Ti16 \(forward\) failed with the status 1"):
        list(costs_of(process, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["forward", "training"])
def test_what_is_timed(task, monkeypatch):
    """Each step is one batch of the size; images are drawn before the time is taken."""
    step = benchmark_process.make_step(benchmark_process.build_or_load(TINY, 16, task, None), task)
    batches = []
    monkeypatch.setattr(benchmark_process, "Repeated", recording(batches))
    speed, once = benchmark_process.time_batch(step, 3, seconds=5.0)
    assert speed > 0 and once > 0
    assert len({id(batch[0]) for batch, _ in batches}) == 1
    assert all(len(array) == 3 for array in batches[0][0])
    assert batches[0][0][0].dtype == "float32"
    # One to compile, one to choose the number of steps, three runs of them.
    steps = [steps for _, steps in batches]
    assert steps[:2] == [1, 1] and len(steps) == 5 and 1 < steps[2] == steps[3] == steps[4]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["forward", "training"])
def test_an_epoch_that_ended_early_is_no_measurement(task, monkeypatch):
    step = benchmark_process.make_step(benchmark_process.build_or_load(TINY, 16, task, None), task)
    step(2, 2)
    repeated = benchmark_process.Repeated
    monkeypatch.setattr(benchmark_process, "Repeated", lambda batch, steps: repeated(batch, 1))
    with pytest.raises(MemoryError, match="1 of 2 steps"):
        step(2, 2)


def recording(batches):
    """Return `Repeated` with a record of its arguments."""
    repeated = benchmark_process.Repeated

    def make(batch, steps):
        batches.append((batch, steps))
        return repeated(batch, steps)

    return make


@pytest.mark.slow
def test_a_mistake_of_the_process_is_told():
    with pytest.raises(ValueError, match="`image_size` .*20"):
        list(benchmark([TINY], image_sizes=(20,), tasks=("forward",)))


@pytest.mark.slow
def test_a_wrong_size_is_found_before_anything_is_measured(tmp_path):
    file = str(tmp_path / "trained.keras")
    classifier(image_size=24, patch_size=6).save(file)
    for models, size in (([TINY, file], 16), ([file, TINY], 18)):
        told = []
        costs = benchmark(models, (24, size), (1,), ("forward",), seconds=0.01, show=told.append)
        with pytest.raises(ValueError, match=rf"\(forward\) at {size} pixels: `image_size` must"):
            next(costs)
        assert told == ["checking the models"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ViT_X", "`model` must be an existing file or directory"),
        ("runs/nowhere", "error: `model` must be an existing file or directory, or the name"),
        ("nowhere.keras", "error: `model` must be an existing file or directory, or the name"),
        ("ViT_Ti16 --image-sizes 0", "`--image-sizes` must be"),
        ("ViT_Ti16 --batch-sizes 4 2", "`--batch-sizes` must be in rising order"),
        ("ViT_Ti16 --seconds 0", "`--seconds` must be positive"),
        ("ViT_Ti16 --output /nowhere/costs.csv", "`output` must be a file in a folder that exists"),
        (f"ViT_Ti16 --output {__file__}", "`output` must be a new file"),
    ],
)
def test_wrong_commands(arguments, message, capsys):
    assert message in error_of(capsys, "benchmark", *arguments.split())


def test_figure(tmp_path):
    points = ((1, 10.0, 100), (2, 20.0, 150))
    costs = [
        Cost(model, size, "forward", points, batch, True)
        for model, size, batch in (("a", 32, 100), ("a", 64, 30), ("b", 32, None))
    ]
    assert costs[0].best == (2, 20.0, 150)
    draw_costs(costs, tmp_path / "costs.png")
    assert (tmp_path / "costs.png").stat().st_size > 10_000
