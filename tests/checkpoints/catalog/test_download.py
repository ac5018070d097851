"""Downloads, from a server of this machine."""

import base64
import concurrent.futures
import dataclasses
import functools
import hashlib
import http.server
import os
import shutil
import threading
import typing

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.catalog.download import fetch, find_file
from keras_vit.models import vision_transformer
from tests.fixtures.checkpoint_files import saved, unchanged
from tests.fixtures.reference import REFERENCE, case_path
from tests.fixtures.tiny import TINY

NAME = "vit_models/imagenet21k/ViT-B_16.npz"
AUGREG = "B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and keeps a list of what was asked for."""

    requests: typing.ClassVar[list] = []
    md5: typing.ClassVar[bytes | None] = None

    def log_message(self, format, *args):
        self.requests.append((self.command, self.path))

    def end_headers(self):
        if self.md5 is not None:
            self.send_header("x-goog-hash", "crc32c=n03x6A==")
            self.send_header("x-goog-hash", f"md5={base64.b64encode(self.md5).decode()}")
        super().end_headers()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A mirror, its folder, and an empty cache."""
    folder = tmp_path / "mirror"
    (folder / NAME).parent.mkdir(parents=True)
    QuietHandler.requests.clear()
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def published(server):
    """A file on the mirror under a published name; it is small, and of another architecture."""
    path = server / NAME
    path.write_bytes(case_path("a_vit_token").read_bytes())
    return path


def test_fetched_once_and_kept(published, tmp_path, capsys):
    path = find_file("ViT_B16/imagenet21k")
    assert path == tmp_path / "home" / "keras_vit" / NAME
    assert path.read_bytes() == published.read_bytes()
    assert "Downloading data from http://127.0.0.1" in capsys.readouterr().out
    published.unlink()
    assert find_file("imagenet21k", "ViT_B16") == path
    assert find_file(f"gs://{NAME}") == path
    assert find_file(f"https://storage.googleapis.com/{NAME}") == path
    assert QuietHandler.requests == [("HEAD", f"/{NAME}"), ("GET", f"/{NAME}")]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_digest_that_the_server_states(is_damaged, published, tmp_path, monkeypatch):
    digest = hashlib.md5(published.read_bytes()).digest()
    monkeypatch.setattr(QuietHandler, "md5", digest)
    if is_damaged:
        # One bit in the middle: still a whole archive.
        data = bytearray(published.read_bytes())
        data[len(data) // 2] ^= 1
        published.write_bytes(data)
        with pytest.raises(ValueError, match="md5 file hash does not match"):
            find_file("ViT_B16/imagenet21k")
        assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    else:
        assert find_file("ViT_B16/imagenet21k").read_bytes() == published.read_bytes()


def test_a_model_by_its_name(published, monkeypatch):
    row = keras_vit.checkpoints.catalog.find_checkpoint("ViT_B16/imagenet21k")
    facts = {"num_classes": 10, "image_size": 32, "representation_size": None}
    row = dataclasses.replace(row, variant=None, **facts)
    monkeypatch.setattr("keras_vit.checkpoints.load.CHECKPOINTS", (row,))
    model = keras_vit.from_checkpoint("ViT_B16/imagenet21k")
    with np.load(published) as arrays:
        np.testing.assert_array_equal(model.get_layer("head").get_weights()[1], arrays["head/bias"])


def test_augreg_files_by_their_names(server):
    file = server / "vit_models" / "augreg" / f"{AUGREG}.npz"
    file.parent.mkdir()
    file.write_bytes(case_path("a_vit_token").read_bytes())
    assert find_file(AUGREG).name == f"{AUGREG}.npz"
    assert find_file(f"{AUGREG}.npz", "ViT_B16").parent.name == "augreg"


def test_two_files_of_one_name_are_kept_apart(published, server):
    other = server / "vit_models" / "imagenet21k+imagenet2012" / "ViT-B_16.npz"
    other.parent.mkdir()
    other.write_bytes(case_path("b_vit_token_rep").read_bytes())
    first, second = find_file("ViT_B16/imagenet21k"), find_file("ViT_B16/imagenet2012")
    assert first.read_bytes() == published.read_bytes()
    assert second.read_bytes() == other.read_bytes()


def test_what_a_killed_download_left_is_not_taken(published, tmp_path):
    target = tmp_path / "home" / "keras_vit" / NAME
    target.parent.mkdir(parents=True)
    (target.parent / "ViT-B_16.npz.4711.part").write_bytes(b"half")
    assert find_file("ViT_B16/imagenet21k").read_bytes() == published.read_bytes()


def test_an_error_page_is_not_kept(server, tmp_path):
    (server / NAME).write_text("<html>log in first</html>")
    with pytest.raises(ValueError, match="a complete file must be at the address.*not a zip file"):
        find_file("ViT_B16/imagenet21k")
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_an_error_page_in_the_place_of_safetensors_is_not_kept(server, tmp_path, monkeypatch):
    (server / "m.safetensors").write_text("<html>log in first</html>")
    address = f"{os.environ['KERAS_VIT_MIRROR']}m.safetensors"
    with pytest.raises(ValueError, match="a complete file must be at the address.*of arrays"):
        fetch(address)
    contents = (REFERENCE / "timm_token.safetensors").read_bytes()
    (server / "m.safetensors").write_bytes(contents[:-4])
    with pytest.raises(ValueError, match="a complete file must be at the address.*of arrays"):
        fetch(address)
    (server / "m.safetensors").write_bytes(contents)
    assert fetch(address).read_bytes() == contents


@pytest.mark.parametrize("name", ["half.weights.h5", "half.keras", "half.npz"])
def test_a_part_of_a_file_is_not_kept(name, server, tmp_path):
    path = tmp_path / name
    model = vision_transformer(**TINY)
    keras_vit.save_checkpoint(model, path, "google") if ".npz" in name else saved(model, path)
    contents = path.read_bytes()
    address = f"{os.environ['KERAS_VIT_MIRROR']}{name}"
    (server / name).write_bytes(contents[: len(contents) // 2])
    with pytest.raises(ValueError, match="a complete file must be at the address"):
        fetch(address)
    (server / name).write_bytes(contents)
    assert fetch(address).read_bytes() == contents


def test_a_part_of_a_configuration_is_not_kept(server):
    shutil.copytree(REFERENCE / "hf_classifier", server / "hf")
    config = server / "hf" / "config.json"
    contents = config.read_bytes()
    config.write_bytes(contents[:100])
    address = f"{os.environ['KERAS_VIT_MIRROR']}hf/model.safetensors"
    with pytest.raises(ValueError, match="config.json .*must hold JSON"):
        keras_vit.from_checkpoint(address)
    config.write_bytes(contents)
    assert keras_vit.from_checkpoint(address).get_layer("block_0").num_heads == 4


def test_safetensors_come_with_their_configuration(server, caplog):
    shutil.copytree(REFERENCE / "hf_classifier", server / "hf")
    address = f"{os.environ['KERAS_VIT_MIRROR']}hf/model.safetensors"
    for _ in range(2):
        model = keras_vit.from_checkpoint(address)
        assert model.get_layer("block_0").num_heads == 4
        assert model.get_layer("block_0").epsilon == 1e-12
    names = ("config.json", "preprocessor_config.json", "processor_config.json")
    names += ("model.safetensors",)
    # An error is logged twice.
    assert list(dict.fromkeys(QuietHandler.requests)) == [("GET", f"/hf/{name}") for name in names]
    assert not [line for line in caplog.messages if "assumed" in line]


def test_what_is_assumed_without_a_configuration_is_named(server, caplog):
    (server / "m.safetensors").write_bytes((REFERENCE / "timm_token.safetensors").read_bytes())
    address = f"{os.environ['KERAS_VIT_MIRROR']}m.safetensors"
    keras_vit.from_checkpoint(address, num_heads=4)
    keras_vit.from_checkpoint(address, num_heads=4, activation="gelu", epsilon=1e-6)
    line, fewer = [line for line in caplog.messages if "are assumed" in line]
    assert line.endswith("which are assumed: pooling=token, activation=gelu, epsilon=1e-06")
    # No argument says otherwise.
    assert fewer.endswith("which are assumed: pooling=token")


def test_the_query_is_part_of_an_address(published):
    address = f"{os.environ['KERAS_VIT_MIRROR']}{NAME}"
    places = {fetch(address), fetch(f"{address}?rev=1"), fetch(f"{address}?rev=2")}
    assert len(places) == 3


def test_several_threads_at_once(published):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paths = set(pool.map(find_file, ["ViT_B16/imagenet21k"] * 4))
    (path,) = paths
    assert path.read_bytes() == published.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_missing_file(server, tmp_path):
    with pytest.raises(
        ValueError, match="a complete file must be at the address.*404.*put the file at"
    ) as error:
        find_file("ViT_B16/imagenet21k")
    assert str(tmp_path / "home" / "keras_vit" / NAME) in str(error.value)
    assert "KERAS_VIT_MIRROR" in str(error.value)


def test_an_unreachable_address(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    # A port of this machine that nothing listens on.
    address = "http://127.0.0.1:9/models/ViT-B_16.npz"
    model = vision_transformer(**TINY)
    before = model.get_weights()
    load_checkpoint = functools.partial(keras_vit.load_checkpoint, model)
    for load in (fetch, keras_vit.from_checkpoint, load_checkpoint):
        with pytest.raises(
            ValueError, match="a complete file must be at the address. Received: http"
        ) as e:
            load(address)
        assert len(str(e.value).splitlines()) == 1
    assert unchanged(model, before)


@pytest.mark.parametrize(
    "address", ["ftp://host/file.npz", "https://host/", "file:///etc/passwd", "gs://b/../../x.npz"]
)
def test_other_addresses(address):
    with pytest.raises(ValueError, match="an address must .*Received: "):
        fetch(address)
