"""Measure the input pipeline against bare JPEG decoding and a PyTorch-style pipeline.

    make bench
    python benchmarks/input_pipeline.py

The files are JPEGs of 500 x 375 pixels in one folder, cut from two photographs. The pipelines take
turns, so that a change of the machine's speed affects all of them. Ratios are medians of the runs'
ratios to `tf.io.decode_jpeg` of the same files. The PyTorch-style pipeline is a `DataLoader` whose
workers decode, crop, resize and flip with Pillow. Then 1, 2, ... processes, with one core each,
read their shards at the same time. The memory is measured in a separate process whose shuffle
buffer is full of JPEGs.
"""

import dataclasses
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import tyro
from PIL import Image

RESULTS = pathlib.Path(__file__).parent / "results"
SIZE = (500, 375)
IMAGE_SIZE = 224
WARMUP_SECONDS = 0.7
AUGMENTATIONS = ("none", "light1", "medium1", "strong1")
# Images per second that training ViT-B/16 takes on an H100 (docs/performance.md).
NEEDED_RATE = 3000
TRAINING = {"training": True, "repeat": True, "min_crop_area": 0.05, "flip": True}


@dataclasses.dataclass
class Benchmark:
    """Measure the input pipeline."""

    num_files: int = 400
    """JPEG files."""
    quality: int = 97
    """JPEG quality; 97 gives about 105 KB, the mean size in ImageNet (138 GB, 1.28 M files)."""
    batch_size: int = 64
    """Images per batch."""
    runs: int = 7
    """Measured runs of each pipeline."""
    seconds: float = 3.0
    """Seconds per run."""
    memory: bool = True
    """Also measure the memory of a full shuffle buffer."""
    output: pathlib.Path = RESULTS / "input_pipeline.json"
    """JSON file to write."""
    fill_buffer_from: pathlib.Path | None = None
    """Folder of TFRecord files; set only in the process that measures the memory."""


def write_files(root, count, quality):
    """Write parts of photographs as JPEG files, in two classes."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    paths = []
    for index in range(count):
        photograph = photographs[index % 2]
        left, top = rng.integers(0, photograph.width - SIZE[0]), rng.integers(0, 427 - SIZE[1])
        part = photograph.crop((left, top, left + SIZE[0], top + SIZE[1]))
        path = root / ("china", "flower")[index % 2] / f"{index:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        part.save(path, quality=quality)
        paths.append(path)
    return paths


def bare_decode(paths, batch_size):
    """Return a dataset that only reads and decodes files, one by one or in batches."""
    import tensorflow as tf

    files = tf.data.Dataset.from_tensor_slices([str(path) for path in paths]).repeat()
    decoded = files.map(
        lambda path: tf.io.decode_jpeg(tf.io.read_file(path), channels=3),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    if batch_size > 1:
        decoded = decoded.batch(batch_size)
    return ((images, batch_size) for images in decoded.prefetch(2))


def ours(root, batch_size, augmentation, shard=(0, 1)):
    """Return `keras_vit.data.load` as in the paper: shuffled batches, cropped and flipped."""
    import keras_vit

    dataset = keras_vit.data.load(
        f"folder:{root}",
        "train+validation+test",
        IMAGE_SIZE,
        batch_size,
        augmentation=augmentation,
        shard=shard,
        **TRAINING,
    )
    return ((images, batch_size) for images, _ in dataset)


class PillowFiles:
    """A PyTorch dataset of files, which are read with Pillow and NumPy."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        rng = np.random.default_rng()
        image = Image.open(io.BytesIO(self.paths[index].read_bytes())).convert("RGB")
        width, height = image.size
        area = width * height * rng.uniform(0.05, 1)
        ratio = rng.uniform(3 / 4, 4 / 3)
        wide = min(width, round((area * ratio) ** 0.5))
        high = min(height, round((area / ratio) ** 0.5))
        left, top = rng.integers(0, width - wide + 1), rng.integers(0, height - high + 1)
        box = (left, top, left + wide, top + high)
        image = image.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(image, "float32")
        if rng.uniform() < 0.5:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray((pixels - 127.5) / 127.5)


def pillow(paths, batch_size):
    """Return a `DataLoader` with one worker per core."""
    import torch

    loader = torch.utils.data.DataLoader(
        PillowFiles(paths),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=os.cpu_count(),
        persistent_workers=True,
    )
    return (
        (images, batch_size) for images in itertools.chain.from_iterable(itertools.repeat(loader))
    )


def measure(batches, seconds):
    """Return the images per second, after the prefetched images are used up."""
    stop = time.perf_counter() + WARMUP_SECONDS
    while time.perf_counter() < stop:
        next(batches)
    seen, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        seen += next(batches)[1]
    return seen / (time.perf_counter() - start)


def compare(pipelines, runs, seconds):
    """Return the images per second of each run of each pipeline, in turns."""
    rates = {name: [] for name in pipelines}
    for name, batches in pipelines.items():
        measure(batches, seconds)
        print(f"{name} is warm")
    for run in range(runs):
        for name, batches in pipelines.items():
            rates[name].append(measure(batches, seconds))
        print(
            f"run {run + 1}: " + ", ".join(f"{name} {rate[-1]:.0f}" for name, rate in rates.items())
        )
    return rates


def rates_of_shards(root, batch_size, seconds):
    """Return the images per second of 1, 2, ... processes together, each with one core."""
    cores = sorted(os.sched_getaffinity(0))
    spawn, rates = multiprocessing.get_context("spawn"), {}
    for count in range(1, len(cores) + 1):
        barrier, queue = spawn.Barrier(count), spawn.Queue()
        arguments = [
            (cores[i], barrier, queue, root, batch_size, (i, count), seconds) for i in range(count)
        ]
        processes = [spawn.Process(target=read_shard, args=each) for each in arguments]
        for process in processes:
            process.start()
        rates[count] = sum(queue.get(timeout=seconds + 60) for _ in processes)
        for process in processes:
            process.join()
    return rates


def read_shard(core, barrier, queue, root, batch_size, shard, seconds):
    """Read a shard on one core as soon as all processes are ready, and report the speed."""
    os.sched_setaffinity(0, {core})
    batches = ours(root, batch_size, "none", shard)
    next(batches)
    barrier.wait()
    queue.put(measure(batches, seconds))


def memory_of_buffer(paths, root):
    """Return the gigabytes of a process whose shuffle buffer is full of JPEGs."""
    import tensorflow as tf

    from keras_vit.data.sources.source import SHUFFLE_BUFFER

    folder = root / "records"
    folder.mkdir()
    encoded = [path.read_bytes() for path in paths]
    with tf.io.TFRecordWriter(str(folder / "train-0.tfrecord")) as writer:
        for index in range(SHUFFLE_BUFFER + 1000):
            features = {
                "image": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[encoded[index % len(encoded)]])
                ),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[index % 2])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    (folder / "labels.txt").write_text("china\nflower\n")
    command = [sys.executable, __file__, "--fill-buffer-from", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def fill_buffer(folder, batch_size):
    """Fill the shuffle buffer of a dataset; print the memory and the size of the buffer."""
    import keras_vit
    from keras_vit.data.sources.source import SHUFFLE_BUFFER

    dataset = keras_vit.data.load(
        f"tfrecord:{folder}/*.tfrecord",
        "train+validation+test",
        IMAGE_SIZE,
        batch_size,
        **TRAINING,
    )
    for _ in dataset.take(10):
        pass
    # Not from `getrusage`, whose peak a process inherits.
    status = pathlib.Path("/proc/self/status").read_text()
    gigabytes = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 2**20
    print(json.dumps({"peak_memory_gb": gigabytes, "shuffle_buffer": SHUFFLE_BUFFER}))


def main():
    """Measure, print and write the results."""
    benchmark = tyro.cli(Benchmark, description=__doc__.splitlines()[0])
    if benchmark.fill_buffer_from is not None:
        fill_buffer(benchmark.fill_buffer_from, benchmark.batch_size)
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        paths = write_files(root / "files", benchmark.num_files, benchmark.quality)
        pipelines = {
            "tf.io.decode_jpeg": bare_decode(paths, 1),
            "tf.io.decode_jpeg in batches": bare_decode(paths, benchmark.batch_size),
            **{
                f"keras_vit {name}": ours(root / "files", benchmark.batch_size, name)
                for name in AUGMENTATIONS
            },
            "Pillow": pillow(paths, benchmark.batch_size),
        }
        rates = compare(pipelines, benchmark.runs, benchmark.seconds)
        medians = {name: statistics.median(rate) for name, rate in rates.items()}
        result = {
            "kilobytes_of_a_file": statistics.mean(path.stat().st_size for path in paths) / 1000,
            "images_per_second": medians,
            f"cores_for_{NEEDED_RATE}_images_per_second": {
                name: NEEDED_RATE / rate * os.cpu_count() for name, rate in medians.items()
            },
            "ratio_to_decode_jpeg": {
                name: summary(rate, rates["tf.io.decode_jpeg"]) for name, rate in rates.items()
            },
            "images_per_second_of_processes": rates_of_shards(
                root / "files", benchmark.batch_size, benchmark.seconds
            ),
            "cores": os.cpu_count(),
            "machine": platform.processor() or platform.machine(),
        }
        if benchmark.memory:
            result |= memory_of_buffer(paths, root)
    print(json.dumps(result, indent=2))
    benchmark.output.write_text(json.dumps(result, indent=2) + "\n")


def summary(rates, others):
    """Return the median, the smallest and the greatest of the runs' ratios."""
    ratios = [rate / other for rate, other in zip(rates, others, strict=True)]
    return {"median": statistics.median(ratios), "range": [min(ratios), max(ratios)]}


if __name__ == "__main__":
    main()
