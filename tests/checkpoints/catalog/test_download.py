"""Downloads, from a server of this machine."""

import base64
import concurrent.futures
import functools
import hashlib
import http.server
import os
import shutil
import threading
import typing

import pytest

import keras_vit
from keras_vit.checkpoints.catalog.download import fetch, find_file
from keras_vit.models import vision_transformer
from tests.fixtures.checkpoint_files import saved
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


def test_fetched_once_and_kept(published, tmp_path):
    path = find_file("ViT_B16/imagenet21k")
    assert path == tmp_path / "home" / "keras_vit" / NAME
    assert path.read_bytes() == published.read_bytes()
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
    if not is_damaged:
        assert find_file("ViT_B16/imagenet21k").read_bytes() == published.read_bytes()
    else:
        # One bit in the middle: still a whole archive.
        data = bytearray(published.read_bytes())
        data[len(data) // 2] ^= 1
        published.write_bytes(data)
        with pytest.raises(ValueError, match="md5 file hash does not match"):
            find_file("ViT_B16/imagenet21k")
        assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_what_a_killed_download_left_is_not_taken(published, tmp_path):
    target = tmp_path / "home" / "keras_vit" / NAME
    target.parent.mkdir(parents=True)
    (target.parent / "ViT-B_16.npz.4711.part").write_bytes(b"half")
    assert find_file("ViT_B16/imagenet21k").read_bytes() == published.read_bytes()


@pytest.mark.parametrize("kind", ["error page", "half of it"])
@pytest.mark.parametrize("name", ["m.weights.h5", "m.keras", "m.npz", "m.safetensors"])
def test_another_file_than_a_whole_one_is_not_kept(name, kind, server, tmp_path):
    path = tmp_path / name
    model = vision_transformer(**TINY)
    is_of_keras = path.suffix in (".h5", ".keras")
    saved(model, path) if is_of_keras else keras_vit.save_checkpoint(model, path)
    contents = path.read_bytes()
    wrong = b"<html>log in first</html>" if kind == "error page" else contents[: len(contents) // 2]
    (server / name).write_bytes(wrong)
    address = f"{os.environ['KERAS_VIT_MIRROR']}{name}"
    with pytest.raises(ValueError, match="a complete file must be at the address"):
        fetch(address)
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    (server / name).write_bytes(contents)
    assert fetch(address).read_bytes() == contents


def test_other_addresses_are_other_files(published, server):
    """Also those of one name, in folders or with queries."""
    address = f"{os.environ['KERAS_VIT_MIRROR']}{NAME}"
    other = NAME.replace("imagenet21k", "imagenet21k+imagenet2012")
    (server / other).parent.mkdir()
    (server / other).write_bytes(case_path("b_vit_token_rep").read_bytes())
    assert fetch(f"gs://{other}").read_bytes() == (server / other).read_bytes()
    assert len({fetch(address), fetch(f"{address}?rev=1"), fetch(f"{address}?rev=2")}) == 3
    assert fetch(address).read_bytes() == published.read_bytes()


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


def test_safetensors_come_with_their_configuration(server):
    shutil.copytree(REFERENCE / "hf_classifier", server / "hf")
    address = f"{os.environ['KERAS_VIT_MIRROR']}hf/model.safetensors"
    for _ in range(2):
        model = keras_vit.from_checkpoint(address)
        assert model.get_layer("block_0").num_heads == 4
        assert model.get_layer("block_0").epsilon == 1e-12
    names = ("config.json", "preprocessor_config.json", "processor_config.json")
    names += ("open_clip_config.json", "model.safetensors")
    # An error is logged twice.
    assert list(dict.fromkeys(QuietHandler.requests)) == [("GET", f"/hf/{name}") for name in names]


def test_several_threads_at_once(published):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paths = set(pool.map(find_file, ["ViT_B16/imagenet21k"] * 4))
    (path,) = paths
    assert path.read_bytes() == published.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "address", ["ftp://host/file.npz", "file:///etc/passwd", "gs://b/../../x.npz"]
)
def test_other_addresses(address):
    with pytest.raises(ValueError, match="an address must .*Received: "):
        fetch(address)
