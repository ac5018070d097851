"""Test a server under load: many clients at once, and some broken images.

A small Vision Transformer is exported and served by the server of the tests, in its own process
(`tests/fixtures/serving/peer.py`: real HTTP and gRPC, and the real SavedModel), because no package
index has TF Serving. Half of the clients use REST, half gRPC. A request has 1 to 4 photographs; one
request in a hundred has a broken photograph. The script checks

- for each answer, that the logits and the most likely class are those of the Keras model;
- for each refusal, that it names the broken image;
- the server's memory, after each tenth of the requests.

The times are those of a server in Python, not of TF Serving.

Example: python benchmarks/requests_under_load.py --requests 10000
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tyro  # noqa: E402

from keras_vit.serving.client import BadImageError, Client  # noqa: E402

NAMES = [f"class {number}" for number in range(10)]
TOLERANCE = 1e-4


@dataclasses.dataclass
class Request:
    """Indices of the photographs in a request, and the position of a broken one, or `None`."""

    photographs: list
    broken: int | None


def make_model():
    """Build a small model whose logits differ between photographs."""
    import keras

    from keras_vit.models import vision_transformer

    keras.utils.set_random_seed(0)
    model = vision_transformer(
        patch_size=8,
        embedding_dim=48,
        depth=3,
        num_heads=3,
        mlp_dim=96,
        num_classes=len(NAMES),
        image_size=32,
    )
    head = model.get_layer("head")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    return model


def make_photographs(count):
    """Return encoded photographs, alternately JPEG and PNG, each a different part of a picture."""
    import io

    from PIL import Image

    from keras_vit.serving.warmup import photograph

    picture = Image.fromarray(photograph())
    rng = np.random.default_rng(1)
    encoded = []
    for number in range(count):
        width, height = (int(side) for side in rng.integers(40, 200, 2))
        left, top = int(rng.integers(0, 320 - width)), int(rng.integers(0, 240 - height))
        buffer = io.BytesIO()
        part = picture.crop((left, top, left + width, top + height))
        part.save(buffer, ("JPEG", "PNG")[number % 2])
        encoded.append(buffer.getvalue())
    return encoded


def break_photograph(encoded, number):
    """Return bytes that are not an image: truncated, empty, another file, or overwritten."""
    middle = len(encoded) // 2
    return (
        encoded[:middle],
        b"",
        b"<html>404 Not Found</html>",
        encoded[: len(encoded) // 3] + bytes(len(encoded) // 3),
    )[number % 4]


def make_requests(count, share_broken, photographs):
    """Return the requests, the same in every run."""
    rng = np.random.default_rng(2)
    broken = set(rng.choice(count, round(count * share_broken), replace=False).tolist())
    requests = []
    for number in range(count):
        chosen = rng.integers(0, photographs, rng.integers(1, 5)).tolist()
        place = int(rng.integers(0, len(chosen))) if number in broken else None
        requests.append(Request(chosen, place))
    return requests


def expected_logits(model, photographs):
    """Return the Keras model's logits for images, preprocessed as in evaluation."""
    from keras_vit.data.images.decoding import decode
    from keras_vit.data.images.geometry import evaluation_image

    size = model.input_shape[1:3]
    pixels = np.stack([evaluation_image(decode(encoded), size) for encoded in photographs])
    return model.predict(pixels, verbose=0)


def send(client, number, request, photographs, expected):
    """Send a request and return `"right"`, `"wrong"`, `"refused"` or an error message."""
    images = [photographs[position] for position in request.photographs]
    if request.broken is not None:
        images[request.broken] = break_photograph(images[request.broken], number)
    try:
        outputs = client.predict(images)
    except BadImageError as error:
        return "refused" if error.positions == [request.broken] else f"misnamed: {error}"
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    if request.broken is not None:
        return "a broken image was answered"
    logits = expected[request.photographs]
    close = np.allclose(outputs["logits"], logits, rtol=0, atol=TOLERANCE)
    names = np.array(NAMES)[logits.argmax(axis=1)]
    return "right" if close and (outputs["top_k_labels"][:, 0] == names).all() else "wrong"


def resident_mebibytes(process):
    """Return the resident memory of a process (Linux)."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def served(directory):
    """Run a server in its own process; yield its id and the URLs of its model."""
    command = [sys.executable, "-m", "tests.fixtures.serving.peer", f"tiny={directory}"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        ports = json.loads(process.stdout.readline())
        yield (
            process.pid,
            [
                f"http://127.0.0.1:{ports['rest_port']}/v1/models/tiny",
                f"grpc://127.0.0.1:{ports['grpc_port']}/tiny",
            ],
        )
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()


def ask_all(urls, clients, requests, photographs, expected, process):
    """Send the requests; return counts of the results, and the server's memory at each tenth."""
    results, memory, lock = collections.Counter(), [resident_mebibytes(process)], threading.Lock()
    tenth = max(1, len(requests) // 10)

    def work(client_number):
        with Client(urls[client_number % len(urls)]) as client:
            client.wait_until_ready()
            for number in range(client_number, len(requests), clients):
                result = send(client, number, requests[number], photographs, expected)
                with lock:
                    results[result] += 1
                    if results.total() % tenth == 0:
                        memory.append(resident_mebibytes(process))

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    return results, memory


def main(requests: int = 10_000, clients: int = 8, broken: float = 0.01):
    """Send the requests, and print the results.

    Args:
        requests: number of requests.
        clients: number of clients at the same time.
        broken: share of the requests that have a broken image.
    """
    from keras_vit.serving.export import export

    model, photographs = make_model(), make_photographs(100)
    asked = make_requests(requests, broken, len(photographs))
    expected = expected_logits(model, photographs)
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/tiny", class_names=NAMES)
        with served(f"{folder}/tiny") as (process, urls):
            start = time.perf_counter()
            results, memory = ask_all(urls, clients, asked, photographs, expected, process)
            seconds = time.perf_counter() - start
    bad = sum(request.broken is not None for request in asked)
    images = sum(len(request.photographs) for request in asked)
    print(f"{requests:,} requests of {clients} clients, {images:,} images")
    print(f"answered right: {results.pop('right', 0):,} of {requests - bad:,}")
    print(f"broken image named: {results.pop('refused', 0):,} of {bad:,}")
    print("server's memory, MiB:", *(f"{one:.0f}" for one in memory))
    print(f"from the first tenth to the end: {memory[-1] - memory[1]:+.1f} MiB")
    print(f"{seconds:.0f} seconds")
    for result, count in results.items():
        print(f"{count:,} x {result}")
    sys.exit(1 if results else 0)


if __name__ == "__main__":
    tyro.cli(main)
