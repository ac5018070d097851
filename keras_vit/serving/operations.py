"""Settings with which TF Serving runs an export, from the templates in `deployment/`."""

import importlib.resources
import pathlib
import re

from keras_vit.core.files import replacing

TEMPLATES = importlib.resources.files("keras_vit.serving") / "deployment"


def write_operations(directory, name):
    """Write `docker-compose.yml`, `models.config` and `batching_parameters.txt` next to an export.

    Existing files are not changed: they may have been adapted. Return the paths of the others.

    Reference:
        https://www.tensorflow.org/tfx/serving/serving_config
    """
    directory = pathlib.Path(directory).expanduser()
    if not directory.is_dir():
        raise ValueError(f"`directory` must be a directory. Received: directory={str(directory)!r}")
    templates = {directory / template.name: template for template in TEMPLATES.iterdir()}
    missing = [path for path in templates if not path.exists()]
    for path in missing:
        text = templates[path].read_text(encoding="utf-8").replace("{name}", served_name(name))
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return missing


def served_name(name):
    """Return the name under which a model is served: "-" replaces what a URL would escape."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", str(name))
