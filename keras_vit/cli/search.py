"""`keras-vit search`."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro

_DRAWN = 20


@dataclasses.dataclass
class Search:
    """Find the images of a dataset that are most similar to photographs, by a model's features.

    Example: keras-vit search features/photos cat.jpg --picture similar.png
    """

    features: Annotated[str, tyro.conf.Positional]
    """A directory of `keras-vit predict MODEL DATA --output DIR --outputs features`."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Image files and folders of them, or another such directory of features of the same model."""
    top: int = 5
    """Images to find for each."""
    picture: pathlib.Path | None = None
    """A new PNG file: a row for each of the first 20 images, followed by those that are found."""

    def run(self):
        """Print a line for each image: the ids that are found, with their cosine similarities."""
        from keras_vit.cli.predict import check_images
        from keras_vit.core.text import printable
        from keras_vit.evaluation.store import read_features

        check_images(self.images, self.top)
        if self.picture is not None and (self.picture.exists() or not self.picture.parent.is_dir()):
            raise ValueError(
                f"`--picture` must be a new file in a directory. Received: {str(self.picture)!r}"
            )
        store = read_features(self.features)
        ids, queries = self._queries(store)
        found, similarities = store.search(queries, self.top)
        for id, indices, scores in zip(ids, found, similarities, strict=True):
            named = [
                f"{printable(store.ids[index])} {score:.3f}"
                for index, score in zip(indices, scores, strict=True)
            ]
            print(printable(id), *named, sep="  ")
        if self.picture is not None:
            self._draw(store, ids, found)
            print(f"Drawn to {self.picture}")

    def _queries(self, store):
        """Return the ids and the features of the images to search for."""
        from keras_vit.data.inputs.find import find_images
        from keras_vit.evaluation.store import check_same_model, is_store, read_features
        from keras_vit.serving import Predictor
        from keras_vit.serving.prediction.models import digest_of_model

        if len(self.images) == 1 and is_store(self.images[0]):
            other = read_features(self.images[0])
            check_same_model(store, other)
            return other.ids, other.features
        model, record = store.record["model"], store.record
        if digest_of_model(model) != record["digest_of_model"]:
            raise ValueError(
                "The model must be that of the features. "
                f"Received: {model!r}, which has changed since they were computed"
            )
        predictor = Predictor(model, ["features"], 32, record["dtype"], record["image_size"])
        images = find_images(self.images)
        found = predictor(images.columns(0, images.num_images))
        is_sound = [error is None for error in found["error"]]
        for id, error in zip(found["id"], found["error"], strict=True):
            if error is not None:
                print(f"keras-vit: error: {id}: {error}", file=sys.stderr)
        if not any(is_sound):
            sys.exit(1)
        return found["id"][is_sound], found["features"][is_sound]

    def _draw(self, store, ids, found):
        from keras_vit.data.inputs.find import find_images, thumbnails
        from keras_vit.inspection.figures.neighbours import draw_neighbours

        shown = list(zip(ids, found, strict=True))[:_DRAWN]
        own = find_images(store.record["images"], store.record["split"])
        wanted = thumbnails(own, {store.ids[index] for _, indices in shown for index in indices})
        asked = thumbnails(find_images(self._asked()), {id for id, _ in shown})
        rows = [
            [(asked[id], id), *((wanted[store.ids[i]], store.ids[i]) for i in indices)]
            for id, indices in shown
        ]
        draw_neighbours(rows, self.picture)

    def _asked(self):
        from keras_vit.evaluation.store import is_store, read_features

        is_other = len(self.images) == 1 and is_store(self.images[0])
        return read_features(self.images[0]).record["images"] if is_other else self.images
