"""The client and its command, asking a real server on this machine by both of its APIs."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.cli.client import Client, most_likely
from keras_vit.cli.predict import Predict
from keras_vit.serving.client import BadImageError
from keras_vit.serving.image_files import read_image
from tests.fixtures.images import encode, random_image
from tests.fixtures.models import files
from tests.fixtures.serving.asking import BOTH, BROKEN, NAMES, ask, expected_logits

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")


@BOTH
def test_predict_returns_what_the_model_computes(api, server, models, tmp_path):
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


@pytest.mark.parametrize(
    ("name", "signature"),
    [("pets", "serving_default"), ("pets", "features"), ("flagging", "serving_default")],
)
def test_both_apis_answer_the_same(name, signature, server):
    answers = []
    for api in ("rest", "grpc"):
        with ask(server, api, name) as client:
            answers.append(client.predict(files(), signature=signature))
    assert set(answers[0]) == set(answers[1])
    for key, value in answers[0].items():
        assert value.dtype == answers[1][key].dtype
        np.testing.assert_array_equal(value, answers[1][key])


@BOTH
@pytest.mark.parametrize("version, numbers", [("", [1, 3]), ("/versions/1", [1])])
def test_a_url_chooses_a_version(version, numbers, api, server, models):
    with ask(server, api, f"pets{version}") as client:
        assert client.status() == dict.fromkeys(numbers, "AVAILABLE")
        logits = client.predict(files())["logits"]
    expected = expected_logits(models[numbers[-1]], files())
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@BOTH
def test_bad_images_are_named_by_their_positions(api, server):
    encoded = files()
    with ask(server, api) as client:
        for images, positions in (
            ([*encoded, BROKEN], [5]),
            ([encoded[0], b"", encoded[1], BROKEN], [1, 3]),
        ):
            with pytest.raises(BadImageError) as caught:
                client.predict(images, batch_size=4)
            assert caught.value.positions == positions
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


@pytest.mark.slow
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
def test_an_unknown_version_is_refused(api, server):
    with ask(server, api, "pets/versions/2") as client:
        for call in (client.status, lambda: client.predict(files())):
            with pytest.raises(ValueError, match="refuses the request"):
                call()


@pytest.mark.parametrize(("orientation", "turns"), [(3, 2), (6, 3), (8, 1)])
@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_photographs_are_read_upright(file_format, orientation, turns, tmp_path):
    picture = random_image()
    (tmp_path / "photo").write_bytes(turned(picture, orientation, file_format))
    image = Image.open(io.BytesIO(read_image(tmp_path / "photo")))
    np.testing.assert_array_equal(np.asarray(image), np.rot90(picture, turns))


@pytest.mark.parametrize("file_format", ["GIF", "BMP"])
def test_what_no_server_decodes_is_sent_as_a_png(file_format, tmp_path):
    (tmp_path / "scan").write_bytes(encode(random_image(), file_format))
    image = Image.open(io.BytesIO(read_image(tmp_path / "scan")))
    assert image.format == "PNG"
    with Image.open(tmp_path / "scan") as stored:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(stored.convert("RGB")))


def turned(picture, orientation, file_format):
    """The bytes of a photograph that a turned camera took."""
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    options = {"lossless": True} if file_format == "WEBP" else {}
    Image.fromarray(picture).save(buffer, file_format, exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.slow
@BOTH
def test_the_command_prints_what_predict_prints(api, server, directory, tmp_path, capsys):
    images = [tmp_path / f"Bild {index}.img" for index in range(4)]
    photographs = [turned(random_image(), 6, kind) for kind in ("JPEG", "WEBP")]
    for image, encoded in zip(images, [*files(2), *photographs], strict=True):
        image.write_bytes(encoded)
    Predict(str(directory / "pets"), tuple(images)).run()
    expected = capsys.readouterr().out
    assert len(expected.splitlines()) == 4
    Client(tuple(images), server.url(api, "pets")).run()
    assert capsys.readouterr() == (expected, "")


def test_the_command_goes_on_after_bad_images_and_fails(server, tmp_path, capsys):
    good, bad = (tmp_path / name for name in ("good.png", "bad.png"))
    good.write_bytes(files(1)[0])
    bad.write_bytes(BROKEN)
    with pytest.raises(SystemExit, match="1"):
        Client((bad, good), server.url("rest", "pets")).run()
    printed = capsys.readouterr()
    assert str(good) in printed.out and str(bad) not in printed.out


@pytest.mark.parametrize("name", ["pets", "flagging"])
def test_the_command_prints_no_classes_of_what_the_server_cannot_decode(
    name, server, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("keras_vit.serving.image_files.read_image", lambda path: BROKEN)
    with pytest.raises(SystemExit, match="1"):
        Client((tmp_path / "a.png",), server.url("grpc", name)).run()
    assert not capsys.readouterr().out


def test_labels_above_their_thresholds_are_all_printed():
    answer = {
        "probabilities": np.array([[0.7, 0.9, 0.1]]),
        "predicted_labels": np.array([["cat", "dog", ""]], object),
    }
    assert most_likely(answer, 1, "http://localhost") == [("dog", 0.9), ("cat", 0.7)]
