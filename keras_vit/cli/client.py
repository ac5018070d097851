"""`keras-vit client`: classify images with a model in TF Serving."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro

from keras_vit.cli.command import Command


@dataclasses.dataclass
class Client(Command):
    """Classify image files with a model that TF Serving serves.

    Example: keras-vit client cat.jpg dog.png --url http://localhost:8501/v1/models/photos

    Args:
        images: image files.
        url: http://HOST:8501/v1/models/NAME for REST, grpc://HOST:8500/NAME for gRPC. Append
            /versions/N for a version other than the newest.
        top: classes to print for each image, the most likely first; at most the `--top-k`
            of `keras-vit export`.
        timeout: seconds to wait for a response.
    """

    images: Annotated[
        tuple[pathlib.Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="IMAGE [IMAGE ...]", help_behavior_hint="(required)"),
    ]
    url: str
    top: int = 3
    timeout: float = 60.0

    def run(self):
        """Print a line for each image. Non-images are reported, and the exit status is then 1."""
        from keras_vit.serving.client import Client as ServingClient

        with ServingClient(self.url, self.timeout) as client:
            results = [_print_classes(image, client, self.top) for image in self.images]
        if not all(results):
            sys.exit(1)


def _print_classes(image, client, top):
    """Print the classes of an image; return whether it could be decoded."""
    from keras_vit.cli.predict import print_classes
    from keras_vit.serving.client import BadImageError
    from keras_vit.serving.image_files import read_image

    try:
        encoded = read_image(image)
    except ValueError as error:
        print(f"keras-vit: error: {error}", file=sys.stderr)
        return False
    try:
        outputs = client.predict([encoded])
    except BadImageError:
        outputs = {"is_bad": [True]}
    if outputs.get("is_bad", [False])[0]:
        print(f"keras-vit: error: the server cannot decode {image}", file=sys.stderr)
        return False
    print_classes(image, most_likely(outputs, top, client.url))
    return True


def most_likely(outputs, top, url):
    """Return the `top` classes of one image with their probabilities, the most likely first.

    For a model with thresholds, return all predicted labels.
    """
    if "predicted_labels" in outputs and "probabilities" in outputs:
        pairs = zip(outputs["predicted_labels"][0], outputs["probabilities"][0], strict=True)
        return sorted((pair for pair in pairs if pair[0]), key=lambda pair: -pair[1])
    if {"top_k_labels", "top_k_probabilities"} - outputs.keys():
        raise ValueError(
            "`--url` must name a model whose default signature returns the names of classes. "
            f"Received: {url}, which returns {', '.join(outputs)}"
        )
    pairs = zip(outputs["top_k_labels"][0], outputs["top_k_probabilities"][0], strict=True)
    return list(pairs)[:top]
