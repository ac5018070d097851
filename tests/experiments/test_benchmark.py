"""The benchmark of a model: what is measured, what stops it, and the command."""

import csv

import pytest

from keras_vit.cli import main
from keras_vit.core.process import available_memory, peak_memory
from keras_vit.experiments import benchmark_process
from keras_vit.experiments.benchmark import Cost, benchmark, estimate_largest_batch
from keras_vit.experiments.benchmark_process import find_largest
from keras_vit.inspection.figures.costs import draw_costs
from tests.fixtures.commands import error_of

TINY = "ViT_Ti16(depth=1, embedding_dim=16, mlp_dim=32, num_heads=2, patch_size=8)"


class Connection:
    """Keeps what is sent."""

    def __init__(self):
        self.sent = []

    def send(self, pair):
        self.sent.append(pair)


def run(monkeypatch, speeds, batch_sizes, may_stop=True):
    """Return what a process sends whose batches have these speeds; `None` is out of memory."""

    def time_batch(step, batch_size, seconds):
        if speeds[batch_size] is None:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return speeds[batch_size], 0.1

    monkeypatch.setattr(benchmark_process, "time_batch", time_batch)
    monkeypatch.setattr(benchmark_process, "make_step", lambda *arguments: None)
    connection = Connection()
    options = ("ViT_Ti16", 32, "forward", batch_sizes, may_stop, None, 0.1)
    benchmark_process.run(connection, options)
    return [(kind, value[:2]) for kind, value in connection.sent]


def test_doubling_ends_when_it_brings_nothing(monkeypatch):
    speeds = {1: 10, 2: 20, 4: 20.1, 8: 19, 16: 30}
    found = run(monkeypatch, speeds, tuple(speeds))
    assert [value for _, value in found] == [(1, 10), (2, 20), (4, 20.1), (8, 19)]
    # Batch sizes of one's own are all measured.
    assert len(run(monkeypatch, speeds, tuple(speeds), may_stop=False)) == 5
    assert [value for _, value in run(monkeypatch, {1: 10, 2: None}, (1, 2))] == [(1, 10)]


@pytest.mark.parametrize("limit", [1, 5, 37, 100])
def test_the_largest_batch_is_found_by_trying(limit):
    tried = []

    def step(batch_size, steps):
        tried.append(batch_size)
        if batch_size > limit:
            raise MemoryError

    assert limit - max(limit // 8, 1) < find_largest(step, 1) <= limit
    assert len(tried) < 15


def test_the_largest_batch_follows_from_the_memory():
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 900)], 1700) == 32
    assert estimate_largest_batch([(8, 1.0, 500)], 1700) is None
    assert estimate_largest_batch([(8, 1.0, 500), (16, 1.0, 500)], 1700) is None
    assert 2**20 < peak_memory() < available_memory()


def test_command(tmp_path, capfd):
    output = tmp_path / "costs.csv"
    arguments = ["--image-sizes", "16", "--batch-sizes", "1", "3", "--seconds", "0.01"]
    main(["benchmark", TINY, *arguments, "--tasks", "training", "--output", str(output)])
    printed = capfd.readouterr()
    assert "images/s" in printed.out and "training" in printed.out
    assert "oneDNN" not in printed.err
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["batch_size"]) for row in rows] == [(TINY, "1"), (TINY, "3")]
    for row in rows:
        assert float(row["images_per_second"]) > 0
        assert 2**20 < int(row["peak_bytes"]) < available_memory()


def test_a_mistake_of_the_process_is_told():
    with pytest.raises(ValueError, match="`image_size` .*20"):
        list(benchmark([TINY], image_sizes=(20,), tasks=("forward",)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ViT_X", "`variant` must be the name of"),
        ("ViT_Ti16 --image-sizes 0", "`image_sizes` must be"),
        ("ViT_Ti16 --batch-sizes 4 2", "`batch_sizes` rise"),
        ("ViT_Ti16 --seconds 0", "`seconds` be positive"),
        ("ViT_Ti16 --output /nowhere/costs.csv", "`output` must be a file in a folder that exists"),
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
