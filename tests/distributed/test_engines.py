"""Ray and Spark: the rows are those of one process."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from keras_vit.serving import Predictor
from keras_vit.serving.predictor import predict_column
from tests.fixtures.commands import run
from tests.fixtures.predicted.parts import assert_same_rows, rows_of

pytestmark = [
    pytest.mark.engines,
    # Ray and Spark leave sockets, files and pandas's warnings behind.
    pytest.mark.filterwarnings("ignore"),
]
OUTPUTS = ("prediction", "probability", "logits")


@pytest.fixture(scope="module")
def expected(path, photos):
    """The rows of one process, by the paths of the images."""
    paths = sorted(map(str, photos.rglob("*.jpg")))
    predictor = Predictor(path, OUTPUTS)
    found = predict_column(predictor.model, "path", paths, OUTPUTS, batch_size=7)
    names = [*OUTPUTS, "error"]
    lists = (
        [_plain(value, error) for value, error in zip(found[n], found["error"], strict=True)]
        for n in names
    )
    rows = zip(paths, *lists, strict=True)
    return {id: dict(zip(names, row, strict=True)) for id, *row in rows}


def _plain(value, error):
    if error is not None:
        return error if value is error else None
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_a_dataset_of_ray(ray, path, photos, expected):
    from keras_vit.distributed.ray import predict

    files = ray.data.read_binary_files(str(photos), include_paths=True)
    settings = {"outputs": OUTPUTS, "batch_size": 7}
    found = predict(files, path, workers=2, rows=16, **settings).take_all()
    rows = {row.pop("path"): _listed(row) for row in found}
    assert_same_rows(rows, expected)


def _listed(row):
    if row["error"] is not None:
        return {**dict.fromkeys(OUTPUTS), "error": row["error"]}
    return {n: value.tolist() if hasattr(value, "tolist") else value for n, value in row.items()}


def test_the_command_on_ray(ray, path, photos, expected, tmp_path, capsys):
    arguments = ("predict", path, photos, "--outputs", *OUTPUTS, "--part-size", 9)
    options = ("--engine", "ray", "--processes", 2)
    run(capsys, *arguments, "--output", tmp_path / "ray", *options)
    rows = {str(photos / id): row for id, row in rows_of(tmp_path / "ray").items()}
    assert_same_rows(rows, expected)
    min((tmp_path / "ray").glob("*.parquet")).unlink()
    assert "9 images predicted" in run(capsys, *arguments, "--output", tmp_path / "ray", *options)


def test_an_error_in_a_worker_of_ray_is_one_line(ray, path, photos, tmp_path, capsys):
    options = ("--outputs", "attention_distance", "--engine", "ray")
    shutil.copy(path, tmp_path / "model.keras")
    (tmp_path / "model.keras").write_bytes(path.read_bytes()[:1000])
    arguments = ("predict", tmp_path / "model.keras", photos, "--output", tmp_path / "ray")
    with pytest.raises(SystemExit) as exit_info:
        run(capsys, *arguments, *options)
    assert exit_info.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert "must be a complete Keras model" in line


def test_gpus_that_are_not_there(ray, path, photos, tmp_path, capsys):
    options = ("--engine", "ray", "--gpus", 1)
    with pytest.raises(SystemExit):
        run(capsys, "predict", path, photos, "--output", tmp_path / "ray", *options)
    line = capsys.readouterr().err.splitlines()[-1]
    assert "must be at most the 0 GPUs of the cluster. Received: num_gpus=1" in line


def test_a_cluster_that_is_not_there(path, photos, tmp_path):
    """In a process of its own, without the cluster of the tests before."""
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "keras_vit", "predict", path, photos, "--engine", "ray"]
    command += ["--address", "127.0.0.1:1", "--output", tmp_path / "ray"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert line.startswith("keras-vit: error: ") and "127.0.0.1:1" in line


def test_a_long_path_for_temporary_files(path, photos, tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "keras_vit", "predict", path, photos, "--engine", "ray"]
    env = {**os.environ, "RAY_TMPDIR": str(tmp_path / ("long" * 20))}
    done = subprocess.run(
        [*map(str, command), "--output", tmp_path / "r"], env=env, capture_output=True, text=True
    )
    line = done.stderr.splitlines()[-1]
    assert "AF_UNIX path length" in line


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


def test_a_data_frame_of_spark(spark, path, expected):
    from keras_vit.distributed.spark import predict

    frame = spark.createDataFrame([(id, id) for id in expected], ["id", "path"]).repartition(4)
    found = predict(frame, path, outputs=OUTPUTS, batch_size=7).collect()
    rows = {row["id"]: row.asDict() for row in found}
    for row in rows.values():
        del row["id"]
    assert len(found) == len(rows)
    assert_same_rows(rows, expected)


def test_bytes_in_a_data_frame_of_spark(spark, path, photos, expected):
    from keras_vit.distributed.spark import predict

    frame = spark.read.format("binaryFile").load(str(photos / "cat"))
    found = predict(frame, path, outputs=OUTPUTS).drop("modificationTime", "length").collect()
    rows = {row["path"].removeprefix("file:"): row.asDict() for row in found}
    for row in rows.values():
        del row["path"]
    assert_same_rows(rows, {id: row for id, row in expected.items() if "/cat/" in id})


def test_columns_of_a_data_frame_are_checked(spark, path):
    from keras_vit.distributed.spark import predict

    with pytest.raises(ValueError, match="must have one of the columns bytes, .*Received: id"):
        predict(spark.createDataFrame([("a",)], ["id"]), path)


def test_the_example_of_spark(photos, tmp_path):
    pytest.importorskip("pyspark")
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "dog" / "7.jpg").unlink()  # Spark leaves out empty files.
    example = pathlib.Path(__file__).parents[2] / "examples" / "08_predict_on_spark.py"
    assert len(example.read_text().splitlines()) <= 60
    found = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "|prediction|count|" in found.stdout
