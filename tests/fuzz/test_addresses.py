"""Addresses of checkpoints: what is downloaded stays in the cache."""

import pathlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keras_vit.checkpoints.catalog.download import cache_path
from keras_vit.checkpoints.catalog.hub import HUB, parse_repository
from tests.fuzz.damage import FUZZ

PARTS = st.sampled_from(
    ["..", ".", "", "%2e%2e", "%2F", "%00", "\\", "a", "model.npz", "~", "C:", "@", "?rev=..", "#x"]
)
ADDRESSES = st.builds(
    lambda scheme, host, parts: scheme + host + "/" + "/".join(parts),
    st.sampled_from(["https://", "http://", "gs://", "file://", "ftp://", ""]),
    st.sampled_from(
        ["host", "user:pw@host", "..", ".", "", "host:80", "[::1]", "[", "a\\b", "%2e%2e"]
    ),
    st.lists(PARTS, max_size=5),
)


@FUZZ
@given(url=ADDRESSES | st.text(max_size=30))
@example(url="https://../x/model.npz")
@example(url="https://user:secret@host/model.npz")
@example(url="gs://./%2F")
def test_files_of_any_address_stay_in_the_cache(url):
    home = pathlib.Path("/cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_HOME", str(home))
        try:
            path = cache_path(url)
        except ValueError as error:
            assert str(error)
            return
    resolved = pathlib.Path(str(path)).resolve()
    assert resolved.is_relative_to(home / "keras_vit") and resolved != home / "keras_vit"
    if url.startswith("http"):
        assert "secret" not in str(path) and "pw@" not in str(path)


@FUZZ
@given(name=st.text(max_size=30) | st.lists(PARTS, max_size=4).map("/".join))
def test_names_of_repositories(name):
    for text in (name, HUB + name):
        try:
            parsed = parse_repository(text)
        except ValueError as error:
            assert str(error)
        else:
            assert ".." not in str(parsed[0]).split("/")
