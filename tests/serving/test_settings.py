"""The settings with which TF Serving runs an export."""

import re
import subprocess

import pytest

from keras_vit.serving.export import write_settings

FILES = ["batching_parameters.txt", "docker-compose.yml", "models.config"]

# `session_bundle_config.proto` of TF Serving, which is not in the package of its API: the fields
# of BatchingParameters that are wrapped numbers.
WRAPPED = "max_batch_size batch_timeout_micros max_enqueued_batches num_batch_threads"


def compose(directory):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((directory / "docker-compose.yml").read_text())["services"]["serving"]


def test_the_directory_is_served_under_its_name(tmp_path):
    text_format = pytest.importorskip("google.protobuf.text_format")
    pb2 = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    write_settings(tmp_path, "pets")
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    text = (tmp_path / "models.config").read_text()
    (config,) = text_format.Parse(text, pb2.ModelServerConfig()).model_config_list.config
    assert (config.name, config.model_platform) == ("pets", "tensorflow")
    # The directory is mounted where the server looks for the model and for the file itself.
    service = compose(tmp_path)
    assert service["volumes"] == [f".:{config.base_path}:ro"]
    assert service["command"] == [f"--model_config_file={config.base_path}/models.config"]
    assert service["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]


def test_batching_is_as_the_proto_requires(tmp_path):
    write_settings(tmp_path, "pets")
    text = (tmp_path / "batching_parameters.txt").read_text()
    statements = [line for line in text.splitlines() if line and not line.startswith("#")]
    wrapped = dict(re.findall(r"^(\w+) \{ value: (\d+) \}$", text, re.MULTILINE))
    assert set(wrapped) == set(WRAPPED.split())
    others = re.findall(r"^allowed_batch_sizes: (\d+)$", text, re.MULTILINE)
    assert len(statements) == len(wrapped) + len(others)
    sizes = list(map(int, others))
    # As the proto requires: increasing, and the last is the largest batch.
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == int(wrapped["max_batch_size"])


def test_existing_files_are_kept(tmp_path):
    (tmp_path / "docker-compose.yml").write_text("adapted")
    write_settings(tmp_path, "pets")
    assert (tmp_path / "docker-compose.yml").read_text() == "adapted"
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


@pytest.mark.parametrize("name", ["Katze & Hund", 'a"b', "a{b}: #c\n"])
def test_names_that_a_url_cannot_have_are_made_simple(name, tmp_path):
    write_settings(tmp_path, name)
    simple = re.sub(r"[^A-Za-z0-9]+", "-", name)
    assert f'name: "{simple}"' in (tmp_path / "models.config").read_text()
    assert compose(tmp_path)["volumes"] == [f".:/models/{simple}:ro"]


@pytest.mark.parametrize(("state", "is_healthy"), [("AVAILABLE", True), ("LOADING", False)])
def test_the_health_check_asks_for_an_available_version(state, is_healthy, tmp_path):
    """Its bash command, against a server that reports this state."""
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse

    from tests.fixtures.serving.peer import Peer

    class Loading(Peer):
        def status(self, name, version=None):
            assert name == "pets"
            answer = GetModelStatusResponse()
            answer.model_version_status.add(version=1, state=state)
            return answer

    write_settings(tmp_path, "pets")
    kind, *command = compose(tmp_path)["healthcheck"]["test"]
    assert kind == "CMD"
    with Loading({}).serve() as peer:
        command[-1] = command[-1].replace("8501", str(peer.rest_port))
        result = subprocess.run(command, timeout=10, stderr=subprocess.DEVNULL)
    assert (result.returncode == 0) == is_healthy
