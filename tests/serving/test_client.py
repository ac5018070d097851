"""The client, asking a real server on this machine by both of its APIs."""

import base64
import json
import re
import socket
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.cli.client import Client as ClientCommand
from keras_vit.cli.client import most_likely
from keras_vit.cli.predict import Predict
from keras_vit.data.decoding import decode
from keras_vit.data.images import evaluation_image
from keras_vit.models import vision_transformer
from keras_vit.serving.client import BadImageError, Client
from keras_vit.serving.export import export
from tests.contract import randomise
from tests.images import encode, random_image
from tests.models.test_vit import TINY

requests = pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")
from tests.serving_peer import Peer, RestHandler, RestServer  # noqa: E402

NAMES = ["cat", "dög", "eel"]
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
BROKEN = b"\xff\xd8\xff no image"
BOTH = pytest.mark.parametrize("api", ["rest", "grpc"])


@pytest.fixture(scope="module")
def models():
    """A model for each version that is served."""
    made = {}
    for version in (1, 3):
        keras.utils.set_random_seed(version)
        made[version] = vision_transformer(**TINY)
        randomise(made[version])
    return made


@pytest.fixture(scope="module")
def directory(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    shared = {"class_names": NAMES, "warmup_batch_sizes": ()}
    few = {"signatures": ("bytes",), **shared}
    every = {"signatures": ("bytes", "float", "features"), **shared}
    export(models[1], root / "pets", version=1, **few)
    export(models[3], root / "pets", version=3, **every)
    export(models[3], root / "flagging", on_bad_image="flag", **few)
    return root


@pytest.fixture(scope="module")
def server(directory):
    names = ("pets", "flagging")
    with Peer({name: directory / name for name in names}).serve() as peer:
        yield peer


def ask(server, api, name="pets", **options):
    return Client(server.url(api, name), **options)


def files(count=5):
    """Pictures of several sizes and formats; that which is a BMP ends with zero bytes."""
    pictures = [random_image(10 + index, 30, seed=index) for index in range(count)]
    for picture in pictures:
        picture[0] = 0
    return [encode(picture, kind) for picture, kind in zip(pictures, FORMATS, strict=False)]


def expected_logits(model, encoded):
    pixels = np.stack([evaluation_image(decode(file), (16, 16)) for file in encoded])
    return model.predict(pixels, verbose=0)


@BOTH
def test_predict(api, server, models, tmp_path):
    encoded = files()
    image = tmp_path / "Kätzchen 猫.png"
    image.write_bytes(encoded[0])
    images = [image, *encoded[1:4], str(image)]
    with ask(server, api) as client:
        outputs = client.predict(images, batch_size=2)
    expected = expected_logits(models[3], [*encoded[:4], encoded[0]])
    np.testing.assert_allclose(outputs["logits"], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(expected), atol=1e-6)
    order = np.argsort(-expected, axis=1)
    np.testing.assert_array_equal(outputs["top_k_classes"], order)
    np.testing.assert_array_equal(outputs["top_k_labels"], np.array(NAMES)[order])
    kinds = {name: (array.dtype.kind, array.dtype.name) for name, array in outputs.items()}
    assert kinds.pop("top_k_labels")[0] == "U"
    assert {name for _, name in kinds.values()} == {"float32", "int32"}
    assert kinds["top_k_classes"] == ("i", "int32")


@pytest.mark.parametrize("name", ["pets", "flagging"])
def test_both_apis_answer_the_same(name, server):
    answers = []
    for api in ("rest", "grpc"):
        with ask(server, api, name) as client:
            answers.append(client.predict(files()))
    assert set(answers[0]) == set(answers[1])
    for key, value in answers[0].items():
        assert value.dtype == answers[1][key].dtype
        np.testing.assert_array_equal(value, answers[1][key])


@BOTH
def test_versions(api, server, models):
    logits = {}
    for version in ("", "/versions/1", "/versions/3"):
        with ask(server, api, f"pets{version}") as client:
            logits[version] = client.predict(files())["logits"]
    np.testing.assert_array_equal(logits[""], logits["/versions/3"])
    np.testing.assert_allclose(
        logits["/versions/1"], expected_logits(models[1], files()), rtol=0, atol=1e-5
    )


@BOTH
def test_features(api, server):
    with ask(server, api) as client:
        outputs = client.predict(files(), batch_size=4, signature="features")
    assert set(outputs) == {"features"}
    assert outputs["features"].shape == (5, TINY["embedding_dim"])
    assert outputs["features"].dtype == "float32"


@BOTH
def test_bad_images_are_named(api, server, tmp_path):
    bad = tmp_path / "kein Bild 猫.jpg"
    bad.write_bytes(BROKEN)
    encoded = files()
    with ask(server, api) as client:
        with pytest.raises(BadImageError, match=f"Received: '{re.escape(str(bad))}'$") as caught:
            client.predict([*encoded, bad], batch_size=4)
        assert caught.value.positions == [5]
        with pytest.raises(BadImageError, match=r"Received: images\[1\], images\[3\]$") as caught:
            client.predict([encoded[0], b"", encoded[1], BROKEN])
        assert caught.value.positions == [1, 3]
        # And it goes on.
        assert len(client.predict(encoded)["logits"]) == 5


@BOTH
def test_bad_images_are_flagged(api, server):
    encoded = files(3)
    with ask(server, api, "flagging") as client:
        outputs = client.predict([encoded[0], BROKEN, *encoded[1:]], batch_size=2)
        good = client.predict(encoded)
    assert outputs["is_bad"].dtype == bool
    np.testing.assert_array_equal(outputs["is_bad"], [False, True, False, False])
    np.testing.assert_allclose(outputs["logits"][[0, 2, 3]], good["logits"], rtol=0, atol=1e-5)


@BOTH
def test_requests_larger_than_a_message_of_grpc(api, server, models):
    encoded = [encode(random_image(700, 900, seed=index)) for index in range(4)]
    assert sum(map(len, encoded)) > 4 * 2**20
    with ask(server, api) as client:
        outputs = client.predict(encoded * 2)
    expected = expected_logits(models[3], encoded)
    np.testing.assert_allclose(outputs["logits"][-4:], expected, rtol=0, atol=1e-5)
    assert outputs["logits"].shape == (8, 3)


@BOTH
@pytest.mark.parametrize("name", ["cats", "pets/versions/2"])
def test_unknown_models(api, name, server):
    with ask(server, api, name) as client:
        for call in (client.status, lambda: client.predict(files())):
            with pytest.raises(ValueError, match="`url` must name a model .*Servable not found"):
                call()


@BOTH
def test_an_unknown_signature(api, server):
    with ask(server, api) as client, pytest.raises(ValueError, match="takes.*not found in sig"):
        client.predict(files(), signature="text")


@BOTH
def test_status(api, server):
    with ask(server, api) as client:
        assert client.status() == {1: "AVAILABLE", 3: "AVAILABLE"}
    with ask(server, api, "pets/versions/1") as client:
        assert client.status() == {1: "AVAILABLE"}


@BOTH
def test_waiting_for_a_model(api, server):
    late = threading.Timer(0.3, lambda: server.models.update(late=server.models["pets"]))
    with ask(server, api, "late") as client:
        with pytest.raises(TimeoutError, match=r"not ready after 0.1 seconds: .*Servable not"):
            client.wait_until_ready(timeout=0.1)
        late.start()
        client.wait_until_ready(timeout=20)
        assert client.status() == {1: "AVAILABLE", 3: "AVAILABLE"}
    late.join()
    del server.models["late"]


@BOTH
def test_a_slow_server(api, server, monkeypatch):
    monkeypatch.setattr(server, "delay", 1)
    message = "did not answer within 0.2 seconds"
    with ask(server, api, timeout=0.2) as client, pytest.raises(TimeoutError, match=message):
        client.predict(files(1))


@pytest.mark.parametrize("url", ["http://{}/v1/models/pets", "grpc://{}/pets"])
def test_no_server(url):
    with socket.socket() as taken:
        # Nobody listens to it.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(url.format(address), timeout=5) as client:
            for call in (client.status, lambda: client.predict(files(1))):
                with pytest.raises(ConnectionError, match=f"No server answers at .*{address}"):
                    call()


@BOTH
def test_a_server_that_fails(api, server, monkeypatch):
    def fail(signature, inputs):
        raise tf.errors.InternalError(None, None, 'It\'s out of "lück"')

    monkeypatch.setattr(server, "predict", fail)
    with ask(server, api) as client, pytest.raises(OSError, match="failed with .*out of.*l") as e:
        client.predict(files(1))
    assert not isinstance(e.value, ConnectionError | TimeoutError)


@pytest.mark.parametrize(
    "status, message", [(502, "failed with status 502: <h1> Bad"), (200, "is not of TF Serving")]
)
def test_something_else_answers(status, message):
    class Proxy(RestHandler):
        def answer(self, pattern, respond):
            self.send(status, b"<h1>\nBad Gateway</h1>")

    proxy = RestServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_port}/v1/models/pets"
    with Client(url) as client, pytest.raises(OSError, match=message):
        client.status()
    proxy.shutdown()
    proxy.server_close()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8501",
        "http://localhost:8501",
        "http://localhost:8501/v1/models/",
        "http://localhost:8501/v1/models/pets:predict",
        "http://localhost:8501/v1/models/pets/versions/new",
        "grpc://localhost:8500",
        "grpc://localhost:8500/v1/models/pets",
        None,
    ],
)
def test_malformed_urls(url):
    with pytest.raises(ValueError, match="`url` must be 'http://HOST.*Received: url="):
        Client(url)


@pytest.mark.parametrize(
    "images, options, message",
    [
        ([], {}, "`images` must be a list .* an empty list"),
        ("cat.jpg", {}, "`images` must be a list .* a str"),
        (b"GIF8", {}, "`images` must be a list .* a bytes"),
        (["no/such.jpg"], {}, r"`images` must be files .*'no/such.jpg' \(No such file"),
        ([b"GIF8"], {"batch_size": 0}, "`batch_size` must be a positive integer"),
    ],
)
def test_wrong_arguments(images, options, message):
    client = Client("http://localhost:1/v1/models/pets")
    with client, pytest.raises(ValueError, match=message):
        client.predict(images, **options)


def test_a_wrong_timeout():
    with pytest.raises(ValueError, match="`timeout` must be positive. Received: timeout=0"):
        Client("grpc://localhost:8500/pets", timeout=0)


@pytest.mark.parametrize(
    "url, package",
    [
        ("http://localhost:1/v1/models/pets", "requests"),
        ("grpc://localhost:1/pets", "grpc"),
        ("grpc://localhost:1/pets", "tensorflow_serving"),
    ],
)
def test_a_missing_package(url, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    if package == "tensorflow_serving":
        monkeypatch.setitem(sys.modules, "tensorflow_serving.apis.predict_pb2", None)
    with pytest.raises(ValueError, match=rf"'keras-vit\[serving\]'. Received: no {package}"):
        Client(url)


@pytest.mark.parametrize("form", ["row", "named row", "column", "named column"])
def test_every_form_of_a_rest_request(form, server):
    """The peer takes them as TF Serving documents them, so the client's form is no accident."""
    instances = [{"b64": base64.b64encode(file).decode()} for file in files(2)]
    body = {
        "row": {"instances": instances},
        "named row": {"instances": [{"image_bytes": one} for one in instances]},
        "column": {"inputs": instances},
        "named column": {"inputs": {"image_bytes": instances}},
    }[form]
    answer = requests.post(server.url("rest", "pets") + ":predict", json=body, timeout=20).json()
    if "row" in form:
        logits = [row["logits"] for row in answer["predictions"]]
    else:
        logits = answer["outputs"]["logits"]
    with ask(server, "grpc") as client:
        np.testing.assert_array_equal(np.float32(logits), client.predict(files(2))["logits"])


def test_numbers_by_rest(server, models):
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    body = {"signature_name": "float", "instances": images.tolist()}
    answer = requests.post(server.url("rest", "pets") + ":predict", json=body, timeout=20).json()
    logits = [row["logits"] for row in answer["predictions"]]
    np.testing.assert_allclose(logits, models[3].predict(images, verbose=0), rtol=0, atol=1e-5)


def test_what_the_peer_refuses(server):
    url = server.url("rest", "pets")
    # In the URL-safe alphabet, which TF Serving does not decode.
    url_safe = base64.urlsafe_b64encode(b"\xff\xef\xbe\xff").decode()
    assert set(url_safe) & set("-_")
    for body in (
        json.dumps({"instances": [{"b64": url_safe}]}),
        json.dumps({"instances": []}),
        json.dumps({"instances": ["a"], "inputs": ["a"]}),
        json.dumps({"signature_name": "float", "instances": [[1.0, 2.0]]}),
        "{",
    ):
        answer = requests.post(url + ":predict", data=body, timeout=20)
        assert answer.status_code == 400, body
        assert answer.text.startswith('{ "error": "')
    assert requests.get(url + ":predict", timeout=20).status_code == 400
    assert requests.get(url + "s", timeout=20).status_code == 404


@BOTH
def test_the_command_prints_what_predict_prints(api, server, directory, tmp_path, capsys):
    images = [tmp_path / f"Bild {index}.img" for index in range(3)]
    for image, encoded in zip(images, files(2), strict=False):
        image.write_bytes(encoded)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(random_image()).save(images[2], "JPEG", exif=turned)
    Predict(str(directory / "pets"), tuple(images)).run()
    expected = capsys.readouterr().out
    assert len(expected.splitlines()) == 3
    ClientCommand(tuple(images), server.url(api, "pets")).run()
    assert capsys.readouterr() == (expected, "")
    ClientCommand(tuple(images), server.url(api, "pets"), top=1).run()
    assert all(line.count("%") == 1 for line in capsys.readouterr().out.splitlines())


def test_the_command_names_bad_images(server, tmp_path, capsys):
    good, bad, absent = (tmp_path / name for name in ("good.png", "bad.png", "absent.png"))
    good.write_bytes(files(1)[0])
    bad.write_bytes(BROKEN)
    with pytest.raises(SystemExit) as exit_info:
        ClientCommand((bad, absent, good), server.url("rest", "pets")).run()
    assert exit_info.value.code == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(str(good))
    assert len(printed.out.splitlines()) == 1
    for line, path in zip(printed.err.splitlines(), (bad, absent), strict=True):
        assert line.startswith("keras-vit: error: ")
        assert str(path) in line


@pytest.mark.parametrize("name", ["pets", "flagging"])
def test_the_command_names_what_the_server_cannot_decode(
    name, server, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("keras_vit.serving.predict.read_image", lambda path: BROKEN)
    with pytest.raises(SystemExit) as exit_info:
        ClientCommand((tmp_path / "a.png",), server.url("grpc", name)).run()
    assert exit_info.value.code == 1
    assert capsys.readouterr().err == (
        f"keras-vit: error: the server cannot decode {tmp_path / 'a.png'}\n"
    )


def test_the_command_names_as_many_classes_as_there_are():
    outputs = {
        "top_k_labels": [["eel", "cat"]],
        "top_k_probabilities": [[0.7, 0.2]],
        "probabilities": [[0.2, 0.1, 0.7]],
    }
    assert most_likely(outputs, 2) == [("eel", 0.7), ("cat", 0.2)]
    with pytest.raises(ValueError, match="`--top` must be at most 2, .*Received: top=3"):
        most_likely(outputs, 3)
    # All that there are.
    assert len(most_likely({**outputs, "probabilities": [[0.2, 0.7]]}, 3)) == 2


@pytest.mark.parametrize("images, top", [((), 3), (("a.png",), 0)])
def test_the_command_without_work(images, top):
    with pytest.raises(ValueError, match="`images` must name at least one file, and `--top` be"):
        ClientCommand(images, "http://localhost:1/v1/models/pets", top).run()
