"""`keras-vit client`, asking a real server on this machine."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.cli.client import Client as ClientCommand
from keras_vit.cli.client import most_likely
from keras_vit.cli.predict import Predict
from keras_vit.serving.predict import read_image
from tests.fixtures.images import random_image
from tests.fixtures.models import files
from tests.fixtures.serving.asking import BOTH, BROKEN

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")


def turned(picture, orientation, file_format):
    """The bytes of a photograph that a turned camera took."""
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    options = {"lossless": True} if file_format == "WEBP" else {}
    Image.fromarray(picture).save(buffer, file_format, exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("orientation, turns", [(3, 2), (6, 3), (8, 1)])
@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_photographs_are_read_upright(file_format, orientation, turns, tmp_path):
    picture = random_image()
    (tmp_path / "photo").write_bytes(turned(picture, orientation, file_format))
    image = Image.open(io.BytesIO(read_image(tmp_path / "photo")))
    assert image.format == "PNG"
    np.testing.assert_array_equal(np.asarray(image), np.rot90(picture, turns))


def test_an_image_that_is_not_decoded_is_refused_for_what_it_is(tmp_path):
    path = tmp_path / "scan.bmp"
    Image.fromarray(random_image()).convert("1").save(path)
    message = r"scan.bmp', which is not \(A BMP must be .* width are 1 0 2 40 62 16\)$"
    with pytest.raises(ValueError, match=message):
        read_image(path)


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
    assert most_likely(outputs, 2, "here") == [("eel", 0.7), ("cat", 0.2)]
    with pytest.raises(ValueError, match="`--top` must be at most 2, .*Received: top=3"):
        most_likely(outputs, 3, "here")
    # All that there are.
    assert len(most_likely({**outputs, "probabilities": [[0.2, 0.7]]}, 3, "here")) == 2


@BOTH
def test_the_command_and_a_model_that_names_no_classes(api, server, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(files(1)[0])
    with pytest.raises(ValueError, match="`--url` must be of a model .*answers features"):
        ClientCommand((path,), server.url(api, "features")).run()


@pytest.mark.parametrize("images, top", [((), 3), (("a.png",), 0)])
def test_the_command_without_work(images, top):
    with pytest.raises(ValueError, match="`(images|--top)` must"):
        ClientCommand(images, "http://localhost:1/v1/models/pets", top).run()
