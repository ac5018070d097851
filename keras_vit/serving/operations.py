"""The files with which an export is run: Docker Compose, and TF Serving's own two."""

import pathlib
import re

from keras_vit.core.files import replacing

_COMPOSE = """\
# TF Serving with this directory's newest version: docker compose up --detach
# A newer version that is put beside it is loaded and takes over, without a restart.
services:
  serving:
    # Name a version in production, at least that of the TensorFlow that exported.
    # tensorflow/serving:latest-gpu runs on a GPU.
    image: tensorflow/serving:latest
    command:
      - --model_config_file=/models/{name}/models.config
      # These two answer the requests of several clients together, for versions that
      # - flag images that cannot be decoded (`--on-bad-image flag`): else one fails all requests,
      # - take any number of images (no `--batch-size`), and
      # - have no warm-up request of more images than batching_parameters.txt allows.
      # Pixels (the signature uint8) must then all have one size.
      # - --enable_batching=true
      # - --batching_parameters_file=/models/{name}/batching_parameters.txt
    ports:
      # This machine alone can connect: TF Serving asks nobody who they are. For others, put a proxy
      # before it that does.
      - "127.0.0.1:8500:8500"  # gRPC
      - "127.0.0.1:8501:8501"  # REST
    volumes:
      - .:/models/{name}:ro
    healthcheck:
      # The image has no curl, so bash asks for the state of the model.
      test:
        - CMD
        - bash
        - -c
        - >-
          exec 3<>/dev/tcp/127.0.0.1/8501 &&
          printf 'GET /v1/models/{name} HTTP/1.0\\r\\n\\r\\n' >&3 &&
          grep -q '"AVAILABLE"' <&3
      interval: 10s
      timeout: 5s
      # Loading and warming up a large model takes minutes.
      start_period: 300s
    restart: unless-stopped
"""

_MODELS = """\
# A ModelServerConfig: what is served, and which versions.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    # The newest version by default. To stay with one, or go back to it:
    # model_version_policy {{ specific {{ versions: 1 }} }}
  }}
}}
"""

_BATCHING = """\
# BatchingParameters: how requests of several clients become one batch.

# At most so many images in a batch; a request with more is refused.
max_batch_size { value: 32 }

# Batches are filled up to one of these sizes, so that few shapes are met. The last is the largest.
allowed_batch_sizes: 1
allowed_batch_sizes: 2
allowed_batch_sizes: 4
allowed_batch_sizes: 8
allowed_batch_sizes: 16
allowed_batch_sizes: 32

# How long a request waits for others, in microseconds.
batch_timeout_micros { value: 2000 }

# Batches that are answered at the same time: one for each GPU, or a few for the cores of a machine.
num_batch_threads { value: 4 }

# Batches that wait; a request beyond them is refused at once, to be sent to another server.
max_enqueued_batches { value: 100 }
"""


def write_operations(directory, name):
    """Writes `docker-compose.yml`, `models.config` and `batching_parameters.txt` beside an export.

    Those that are there already are left as they are: they may have been adapted.

    Args:
        directory: path of the model's directory, which holds its versions.
        name: of the model, as it is served; what is not simple in a URL becomes "-".

    Returns:
        A list of the paths that were written.

    Raises:
        ValueError: if there is no such directory.

    Reference:
        https://www.tensorflow.org/tfx/serving/serving_config

    Example:
    >>> from keras_vit.serving.operations import write_operations
    >>> sorted(path.name for path in write_operations(tmp_path, "pets"))
    ['batching_parameters.txt', 'docker-compose.yml', 'models.config']
    >>> write_operations(tmp_path, "pets")
    []
    """
    directory = pathlib.Path(directory).expanduser()
    if not directory.is_dir():
        raise ValueError(f"`directory` must be a directory. Received: directory={str(directory)!r}")
    name = served_name(name)
    files = {
        "docker-compose.yml": _COMPOSE.format(name=name),
        "models.config": _MODELS.format(name=name),
        "batching_parameters.txt": _BATCHING,
    }
    missing = [directory / file for file in files if not (directory / file).exists()]
    for path in missing:
        with replacing(path) as partial:
            partial.write_text(files[path.name], encoding="utf-8")
    return missing


def served_name(name):
    """The name under which a model is served: what is not simple in a URL becomes "-".

    Example:
    >>> from keras_vit.serving.operations import served_name
    >>> served_name("my photos")
    'my-photos'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(name))
