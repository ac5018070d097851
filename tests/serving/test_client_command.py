"""`keras-vit client`, asking a real server on this machine."""

import pytest
from PIL import Image

from keras_vit.cli.client import Client as ClientCommand
from keras_vit.cli.client import most_likely
from keras_vit.cli.predict import Predict
from tests.images import random_image
from tests.serving.asking import BOTH, BROKEN, files

pytest.importorskip("requests")
pytest.importorskip("tensorflow_serving")


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
