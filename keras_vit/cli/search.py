"""`keras-vit search`."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro

_DRAWN, _DRAWN_EACH = 20, 10


@dataclasses.dataclass
class Search:
    """Find the images of a dataset that are most similar to photographs, by a model's features.

    Example: keras-vit search features/photos cat.jpg --picture similar.png
    """

    features: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FEATURES")]
    """A directory of `keras-vit predict MODEL DATA --output DIR --outputs features`."""
    images: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="IMAGE [IMAGE ...]", help_behavior_hint="(required)"),
    ]
    """Image files and folders of them, or another such directory of features of the same model."""
    top: int = 5
    """Images to find for each."""
    picture: pathlib.Path | None = None
    """A new PNG file: a row for each of the first 20 images, then up to 10 that are found."""

    def run(self):
        """Print a line for each image: the ids that are found, with their cosine similarities."""
        import numpy as np

        from keras_vit.cli.predict import check_images
        from keras_vit.core.text import printable
        from keras_vit.evaluation.stored import read_features
        from keras_vit.inspection.figures.drawing import check_matplotlib

        check_images(self.images, self.top)
        if self.picture is not None and (self.picture.exists() or not self.picture.parent.is_dir()):
            raise ValueError(
                f"`--picture` must be a new file in a directory. Received: {str(self.picture)!r}"
            )
        if self.picture is not None:
            check_matplotlib()
        store = read_features(self.features)
        drawn, is_whole = [], True
        for ids, queries, reasons in self._queries(store):
            is_sound = np.array([reason is None for reason in reasons], bool)
            is_whole &= is_sound.all()
            for id, reason in zip(ids[~is_sound], reasons[~is_sound], strict=True):
                print(f"keras-vit: error: {printable(id)}: {reason}", file=sys.stderr)
            if not is_sound.any():
                continue
            places, similarities = store.search(queries[is_sound], self.top)
            for id, found, scores in zip(
                ids[is_sound], store.ids[places], similarities, strict=True
            ):
                print(
                    printable(id), *map("{} {:.3f}".format, map(printable, found), scores), sep="  "
                )
                drawn += [(id, found[:_DRAWN_EACH])] if len(drawn) < _DRAWN else []
        if self.picture is not None and drawn:
            self._draw(store, drawn)
            print(f"Drawn to {self.picture}")
        if not is_whole:
            sys.exit(1)

    def _queries(self, store):
        """Yield the ids, the features, and why there are none, of the images to search for."""
        import numpy as np

        from keras_vit.cli.predict_lines import predicted
        from keras_vit.data.inputs.find import find_images
        from keras_vit.evaluation.stored import check_same_model, is_store, read_features
        from keras_vit.serving.predictor import Predictor, digest_of_model

        if len(self.images) == 1 and is_store(self.images[0]):
            other = read_features(self.images[0])
            check_same_model(store, other)
            yield other.ids, other.features, np.full(len(other.ids), None)
            return
        model, record = store.record["model"], store.record
        if digest_of_model(model) != record["digest_of_model"]:
            raise ValueError(
                "The model must be that of the features. "
                f"Received: {model!r}, which has changed since they were computed"
            )
        predictor = Predictor(model, ["features"], 32, record["dtype"], record["image_size"])
        for found in predicted(predictor, find_images(self.images)):
            yield found["id"], found["features"], found["error"]

    def _draw(self, store, drawn):
        from keras_vit.data.inputs.find import find_images, thumbnails
        from keras_vit.evaluation.stored import is_store, read_features
        from keras_vit.inspection.figures.neighbors import draw_neighbors

        def images_of(record):
            images = find_images(record["images"], record["split"], record.get("data_dir"))
            if images.digest() != record["digest_of_images"]:
                raise ValueError(
                    "The images must be those of the features to be drawn. "
                    f"Received: {record['images']}, which have changed since they were computed"
                )
            return images

        is_other = len(self.images) == 1 and is_store(self.images[0])
        asked = images_of(read_features(self.images[0]).record) if is_other else None
        asked = thumbnails(asked or find_images(self.images), {id for id, _ in drawn})
        known = thumbnails(images_of(store.record), {id for _, found in drawn for id in found})
        rows = [[(asked[id], id), *((known[one], one) for one in found)] for id, found in drawn]
        draw_neighbors(rows, self.picture)
