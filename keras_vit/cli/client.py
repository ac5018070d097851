"""`keras-vit client`."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro


@dataclasses.dataclass
class Client:
    """Classify image files with a model that TF Serving serves.

    Example: keras-vit client cat.jpg dog.png --url http://localhost:8501/v1/models/photos
    """

    images: Annotated[tuple[pathlib.Path, ...], tyro.conf.Positional]
    """Image files."""
    url: str
    """http://HOST:8501/v1/models/NAME for REST, grpc://HOST:8500/NAME for gRPC; with /versions/N
    behind it for a version other than the newest."""
    top: int = 3
    """Classes to print for each image, the most likely first."""
    timeout: float = 60.0
    """Seconds that the server may take for an image."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self):
        """Prints a line for each image; what is no image is named, and the exit status then 1."""
        from keras_vit.cli.predict import print_classes
        from keras_vit.serving.client import Client as Server
        from keras_vit.serving.predict import read_image

        if not self.images or self.top < 1:
            raise ValueError(
                "`images` must name at least one file, and `--top` be positive. "
                f"Received: {len(self.images)} images, top={self.top}"
            )
        bad = 0
        with Server(self.url, self.timeout) as server:
            for image in self.images:
                try:
                    encoded = read_image(image)
                except ValueError as error:
                    print(f"keras-vit: error: {error}", file=sys.stderr)
                    bad += 1
                    continue
                outputs = answer(server, encoded)
                if outputs is None:
                    print(f"keras-vit: error: the server cannot decode {image}", file=sys.stderr)
                    bad += 1
                    continue
                print_classes(image, most_likely(outputs, self.top))
        if bad:
            sys.exit(1)


def answer(server, encoded):
    """The outputs for one image; `None` where the server refuses it or flags it as bad."""
    from keras_vit.serving.client import BadImageError

    try:
        outputs = server.predict([encoded])
    except BadImageError:
        return None
    return None if outputs.get("is_bad", [False])[0] else outputs


def most_likely(outputs, top):
    """The classes of one image with their probabilities, the most likely first.

    Args:
        outputs: what `keras_vit.serving.client.Client.predict` returns.
        top: how many.

    Returns:
        A list of pairs.

    Raises:
        ValueError: if the model does not name so many, or none.
    """
    if "top_k_labels" not in outputs:
        raise ValueError(
            "`--url` must be of a model whose default signature names classes. "
            f"Received: one that answers {', '.join(outputs)}"
        )
    known, classes = len(outputs["top_k_labels"][0]), len(outputs["probabilities"][0])
    if top > known < classes:
        raise ValueError(
            f"`--top` must be at most {known}, as many classes as the server names. "
            f"Received: top={top}"
        )
    pairs = zip(outputs["top_k_labels"][0], outputs["top_k_probabilities"][0], strict=True)
    return list(pairs)[:top]
