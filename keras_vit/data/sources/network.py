"""Downloads of TensorFlow Datasets that fail at once without a network."""

import contextlib
import functools
import json
import urllib.parse

import tensorflow as tf

_SECONDS, _ATTEMPTS = 5, 2
_METHODS = ("download", "download_and_extract")


@contextlib.contextmanager
def checked_downloads(root):
    """Check that hosts can be reached before TensorFlow Datasets downloads from them.

    It would retry for minutes. Files that it downloaded before are not checked.

    Args:
        root: `data_dir_root` of the builder.

    Raises:
        ConnectionError: in the download, if its host cannot be reached.
    """
    import tensorflow_datasets as tfds

    manager = tfds.download.DownloadManager
    # A dataset's own code decides what is downloaded, so this is known in these methods only.
    methods = {name: getattr(manager, name) for name in _METHODS}
    try:
        for name, method in methods.items():
            setattr(manager, name, _checked(method, root))
        yield
    finally:
        for name, method in methods.items():
            setattr(manager, name, method)


def check_hosts(urls):
    """Raise `ConnectionError` if the host of one of the HTTP addresses cannot be reached."""
    for host in sorted({_host(url) for url in urls if url.startswith("http")}):
        if not any(_is_reachable(host) for _ in range(_ATTEMPTS)):
            raise ConnectionError(f"{host} cannot be reached")


def _checked(method, root):
    @functools.wraps(method)
    def download(manager, url_or_urls):
        resources = tf.nest.flatten(url_or_urls)
        urls = {getattr(resource, "url", resource) for resource in resources}
        check_hosts({url for url in urls if isinstance(url, str)} - _downloaded(root))
        return method(manager, url_or_urls)

    return download


def _host(url):
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_reachable(host):
    import requests

    try:
        # It uses the proxies of the environment, as TensorFlow Datasets does. Any answer will do.
        requests.head(host, timeout=_SECONDS)
    except requests.ConnectionError:
        return False
    except requests.RequestException:
        # It answers slowly, or nonsense.
        return True
    return True


def _downloaded(root):
    """Return the URLs of the files that were downloaded before, which TensorFlow Datasets lists."""
    found = set()
    for path in root.glob("downloads/*.INFO"):
        found.update(json.loads(path.read_text()).get("urls", ()))
    return found
