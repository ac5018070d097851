"""Tables and records of runs as an editor or a stopped disk leaves them."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from keras_vit.checkpoints.configuration import read_json
from keras_vit.checkpoints.run_files import read_run
from keras_vit.data import find_source
from tests.fixtures.images import encode, random_image
from tests.fuzz.damage import FUZZ, damaged

CELLS = st.sampled_from(
    ["1.jpg", "../1.jpg", "/etc/passwd", "cat dog", "image", "1.jpg,cat", "", " ", '"', "\0", "é"]
)
TABLE = b"1.jpg,cat\n2.jpg,dog cat\n"


@FUZZ
@given(
    contents=st.one_of(
        damaged([TABLE]),
        st.lists(st.lists(CELLS, max_size=3).map(",".join), max_size=5)
        .map("\n".join)
        .map(str.encode),
    )
)
@example(contents=TABLE)
@example(contents=b'1.jpg,"cat')
def test_tables_of_labels(contents, folder):
    for name in ("1.jpg", "2.jpg"):
        if not (folder / name).exists():
            (folder / name).write_bytes(encode(random_image(), "JPEG"))
    (folder / "labels.csv").write_bytes(contents)
    try:
        source = find_source(f"csv:{folder / 'labels.csv'}", "train")
    except ValueError as error:
        assert str(error)
    else:
        assert source.class_names


RECORD = json.dumps({"recipe": {"image_size": 32}, "model": "ViT_Ti16", "data": "digits"}).encode()


@FUZZ
@given(contents=st.one_of(damaged([RECORD]), st.integers(0, 10**5).map(lambda n: b"[" * n)))
def test_records_of_runs(contents, folder):
    (folder / "run.json").write_bytes(contents)
    for read in (lambda: read_json(folder / "run.json"), lambda: read_run(folder / "best.keras")):
        try:
            assert isinstance(read(), (dict, type(None)))
        except ValueError as error:
            assert str(error)
