"""`keras-vit inspect`."""

import dataclasses
import pathlib
import sys
from typing import Annotated

import tyro


@dataclasses.dataclass
class Inspect:
    """Draw what a model has learned and attends to, as PNG files and one page.

    The figures are filters, position embeddings, attention distance, attention rollout, and the
    attention of each head. Example: keras-vit inspect runs/photos --out seen
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A run's directory (its best model), a .keras file, or a checkpoint as in `convert`."""
    out: pathlib.Path
    """Directory for the figures and `index.html`; existing figures are replaced."""
    images: tuple[pathlib.Path, ...] = ()
    """Image files, and folders of them, to use instead of `--data`."""
    data: str | None = None
    """Dataset as in `keras-vit train`; by default the data of the run."""
    split: str = "test"
    """train, validation or test."""
    count: int = 128
    """Greatest number of images for the attention distance, taken evenly from `--images`; some of
    them are shown in the other figures."""
    image_size: tuple[int, ...] | None = None
    """Image size, one number or height and width: resizes a model for another size. A file that
    does not record its size needs this."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""

    def run(self):
        """Draw the figures, and print the path of the page."""
        from keras_vit.checkpoints.trained import load_trained
        from keras_vit.cli.convert import as_image_size
        from keras_vit.inspection.figures.drawing import check_matplotlib
        from keras_vit.inspection.report import write_report
        from keras_vit.models.model import image_spec_of

        check_matplotlib()
        if self.count < 1 or (self.images and self.data):
            raise ValueError(
                "`--images` and `--data` exclude each other, and `--count` must be positive. "
                f"Received: {len(self.images)} images, data={self.data}, count={self.count}"
            )
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"`--out` must be a directory. Received: {str(self.out)!r}, a file")
        model = load_trained(self.model, as_image_size(self.image_size))
        images = self._read(model.input_shape[1:3], image_spec_of(model))
        print(f"Inspecting {model.name} on {len(images)} images")
        page = write_report(model, images, self.out, verbose="auto" if sys.stdout.isatty() else 0)
        print(f"The figures are in {page.parent}, and all of them on one page: {page}")

    def _read(self, size, image_spec):
        from keras_vit.cli.data import first_images
        from keras_vit.serving.encoded import preprocess_files, read_image

        if self.images:
            encoded = (read_image(file, image_spec.antialias) for file in self._files())
            return preprocess_files(encoded, size, image_spec)
        dataset = self._dataset(size, image_spec)
        images, _ = first_images(dataset, self.count)
        if len(dataset.info.skipped):
            print(dataset.info.skipped)
        return images

    def _files(self):
        """Return at most `count` image files, from all folders: a folder starts with one class."""
        from keras_vit.serving.encoded import find_images

        files = find_images(self.images)
        count = min(self.count, len(files))
        return [files[number * len(files) // count] for number in range(count)]

    def _dataset(self, size, image_spec):
        """Return the split, shuffled as for training: a folder starts with one class."""
        from keras_vit.checkpoints.runs import find_model, run_of
        from keras_vit.data.loading import load

        run = run_of(find_model(self.model))
        name = self.data or run.get("data")
        if name is None:
            raise ValueError(
                "`--images` or `--data` must be given for a model outside a run's directory. "
                "Received: neither"
            )
        classes = run.get("classes") if self.data is None else None
        options = {"classes": classes, "data_dir": self.data_dir, "image_spec": image_spec}
        return load(name, self.split, size, min(self.count, 32), training=True, **options)
