"""Ray and Spark: the rows are those of one process."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.fixtures.commands import run
from tests.fixtures.predicted.parts import OUTPUTS, assert_same_rows, rows_of

pytestmark = [
    pytest.mark.engines,
    # Ray and Spark leave sockets, files and pandas's warnings behind.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def expected_by_path(expected, photos):
    """The rows of one process, by the paths of the images."""
    return {str(photos / id): row for id, row in expected.items()}


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_a_dataset_of_ray(ray, path, photos, expected_by_path):
    from keras_vit.distributed.ray import predict

    files = ray.data.read_binary_files(str(photos), include_paths=True)
    options = {"outputs": OUTPUTS, "batch_size": 7, "workers": 2, "rows": 16}
    found = predict(files, path, **options).take_all()
    assert_same_rows({row.pop("path"): _plain(row) for row in found}, expected_by_path)


def _plain(row):
    """A row of Ray as Parquet has it: lists, and nothing for an image that is not decoded."""
    if row["error"] is not None:
        return {**dict.fromkeys(OUTPUTS), "error": row["error"]}
    return {n: value.tolist() if hasattr(value, "tolist") else value for n, value in row.items()}


def test_the_command_on_ray(ray, path, photos, expected, tmp_path, capsys):
    arguments = ("predict", path, photos, "--outputs", *OUTPUTS, "--part-size", 9)
    options = ("--engine", "ray", "--processes", 2)
    run(capsys, *arguments, "--output", tmp_path / "ray", *options)
    assert_same_rows(rows_of(tmp_path / "ray"), expected)
    min((tmp_path / "ray").glob("*.parquet")).unlink()
    assert "9 images predicted" in run(capsys, *arguments, "--output", tmp_path / "ray", *options)


def test_gpus_that_are_not_there_are_refused(ray, path, photos, tmp_path, capsys):
    options = ("--engine", "ray", "--gpus", 1)
    with pytest.raises(SystemExit):
        run(capsys, "predict", path, photos, "--output", tmp_path / "ray", *options)
    assert "must be at most the 0 GPUs of the cluster" in capsys.readouterr().err


@pytest.fixture(scope="module")
def spark():
    pyspark = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark.SparkSession.builder.master("local[2]")
    for name in ("bindAddress", "host"):
        builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
    builder = builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "7").getOrCreate()
    yield spark
    spark.stop()


def test_a_data_frame_of_spark(spark, path, expected_by_path):
    from keras_vit.distributed.spark import predict

    frame = spark.createDataFrame([(path, path) for path in expected_by_path], ["id", "path"])
    found = predict(frame.repartition(4), path, outputs=OUTPUTS, batch_size=7).collect()
    assert len(found) == len(expected_by_path)
    assert_same_rows(_by(found, "id"), expected_by_path)


def _by(rows, key):
    """Rows of Spark by a column."""
    dictionaries = [row.asDict() for row in rows]
    return {row.pop(key): row for row in dictionaries}


def test_bytes_in_a_data_frame_of_spark(spark, path, photos, expected_by_path):
    from keras_vit.distributed.spark import predict

    frame = spark.read.format("binaryFile").load(str(photos / "cat"))
    found = predict(frame, path, outputs=OUTPUTS).drop("modificationTime", "length").collect()
    rows = {id.removeprefix("file:"): row for id, row in _by(found, "path").items()}
    of_cats = {id: row for id, row in expected_by_path.items() if "/cat/" in id}
    assert_same_rows(rows, of_cats)


def test_the_example_of_spark(photos, tmp_path):
    pytest.importorskip("pyspark")
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "dog" / "7.jpg").unlink()  # Spark leaves out empty files.
    example = pathlib.Path(__file__).parents[2] / "examples" / "08_predict_on_spark.py"
    found = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "|prediction|count|" in found.stdout
