"""Downloads of TensorFlow Datasets without a network; only this machine is asked."""

import http.server
import json
import threading
import time

import pytest
import tensorflow_datasets as tfds

from keras_vit.data import find_source


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def host(monkeypatch):
    """A host that answers with errors, and is stopped at the end."""
    monkeypatch.setenv("NO_PROXY", "*")
    server = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """CIFAR-10, which asks for the archive of another host."""

    def asking_for(address):
        def split_generators(builder, manager):
            return manager.download_and_extract({"archive": f"{address}/archive.zip"})

        builder = tfds.builder("cifar10", data_dir=tmp_path)
        monkeypatch.setattr(type(builder), "_split_generators", split_generators)
        return lambda: find_source("cifar10", "test", data_dir=tmp_path)

    return asking_for


def address_of(host):
    return f"http://127.0.0.1:{host.server_port}"


@pytest.mark.slow
def test_a_host_that_cannot_be_reached_is_an_error_at_once(host, cifar):
    address = address_of(host)
    host.shutdown()
    host.server_close()
    start = time.monotonic()
    message = f"cifar10 could not be downloaded to .*ConnectionError: {address} cannot be reached"
    with pytest.raises(ValueError, match=message):
        cifar(address)()
    # The retries of TensorFlow Datasets take minutes.
    assert time.monotonic() - start < 20


def test_a_host_that_answers_is_asked_for_the_file(host, cifar):
    methods = vars(tfds.download.DownloadManager).copy()
    with pytest.raises(ValueError, match="cifar10 could not be downloaded to .*HTTP code: 501"):
        cifar(address_of(host))()
    assert vars(tfds.download.DownloadManager) == methods


def test_a_file_that_was_downloaded_needs_no_host(host, cifar, tmp_path, monkeypatch):
    address = address_of(host)
    host.shutdown()
    host.server_close()
    (tmp_path / "downloads").mkdir()
    info = {"urls": [f"{address}/archive.zip"]}
    (tmp_path / "downloads" / "archive.zip.INFO").write_text(json.dumps(info))

    def fail(*args, **kwargs):
        raise OSError("TensorFlow Datasets was asked")

    monkeypatch.setattr("requests.Session.get", fail)
    with pytest.raises(ValueError, match="TensorFlow Datasets was asked"):
        cifar(address)()
