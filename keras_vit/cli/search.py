"""`keras-vit search`: find similar images by their features."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro

from keras_vit.cli.command import Command, ImageArguments, check_new_file
from keras_vit.core.text import printable

_DRAWN, _DRAWN_EACH = 20, 10


@dataclasses.dataclass
class Search(Command):
    """Find the images of a dataset that are most similar to given images, by a model's features.

    Example: keras-vit search features/photos cat.jpg --picture similar.png

    Args:
        features: directory written by `keras-vit predict MODEL DATA --output DIR --outputs
            features`.
        images: image files or folders of them, or another directory of features of the same model.
        top: number of similar images to find for each image.
        picture: new PNG file with a row for each of the first 20 images: the image, and up to 10
            similar images.
    """

    features: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FEATURES")]
    images: ImageArguments
    top: int = 5
    picture: pathlib.Path | None = None

    def run(self):
        """Print a line for each image: the ids of similar images, and their cosine similarities."""
        import numpy as np

        from keras_vit.evaluation.feature_store import check_same_model, is_store, read_features
        from keras_vit.inspection.figures.drawing import check_matplotlib

        if self.picture is not None:
            check_new_file(self.picture, ".png")
            check_matplotlib()
        store, other = read_features(self.features), None
        if any(map(is_store, self.images)):
            other = read_features(*self.images)
            check_same_model(store, other)
        drawn, num_broken = [], 0
        for ids, queries, reasons in predicted_features(store.record, self.images, other):
            is_decoded = np.array([reason is None for reason in reasons], bool)
            for id, reason in zip(ids[~is_decoded], reasons[~is_decoded], strict=True):
                print(f"keras-vit: error: {printable(id)}: {reason}", file=sys.stderr)
                num_broken += 1
            if not is_decoded.any():
                continue
            indices, similarities = store.search(queries[is_decoded], self.top)
            rows = zip(ids[is_decoded], store.ids[indices], similarities, strict=True)
            for id, names, scores in rows:
                similar = map("{} {:.3f}".format, map(printable, names), scores)
                print(printable(id), *similar, sep="  ")
                drawn.append((id, names[:_DRAWN_EACH]))
        if self.picture is not None and drawn:
            self._draw(drawn[:_DRAWN], store, other)
            print(f"Drawn to {self.picture}")
        if num_broken:
            sys.exit(1)

    def _draw(self, drawn, store, other):
        from keras_vit.data.inputs import find_images, thumbnails
        from keras_vit.inspection.figures.drawing import draw_neighbors

        images = find_images(self.images) if other is None else other.images()
        queries = thumbnails(images, {id for id, _ in drawn})
        known = thumbnails(store.images(), {name for _, names in drawn for name in names})
        rows = [[(queries[id], id), *((known[n], n) for n in names)] for id, names in drawn]
        draw_neighbors(rows, self.picture)


def predicted_features(record, images, other=None):
    """Yield ids, features and errors of images.

    The features are read from the store `other`, or computed by the model that `record` names.
    """
    import numpy as np

    from keras_vit.cli.predict import predicted
    from keras_vit.data.inputs import find_images
    from keras_vit.serving import Predictor
    from keras_vit.serving.predictor import digest_of_model

    if other is not None:
        yield other.ids, other.features, np.full(len(other.ids), None)
        return
    if digest_of_model(record["model"]) != record["digest_of_model"]:
        raise ValueError(
            "The model must be the one that computed the features. "
            f"Received: {record['model']!r}, which has changed since then"
        )
    settings = (["features"], 32, record["dtype"], record["image_size"])
    for columns in predicted(Predictor(record["model"], *settings), find_images(images)):
        yield columns["id"], columns["features"], columns["error"]
