"""`keras-vit inspect`: draw what a model has learned and attends to."""

import dataclasses
import pathlib
import sys

from keras_vit.cli.command import Command, ImageSize, ModelArgument, evenly_spaced


@dataclasses.dataclass
class Inspect(Command):
    """Draw what a model has learned and attends to, as PNG files and an HTML page.

    The figures are filters, position embeddings, attention distance, attention rollout, patch
    colors, token norms, and the attention of each head.
    Example: keras-vit inspect runs/photos --out seen

    Args:
        out: directory for the figures and `index.html`. Figures of an earlier call are replaced.
        images: image files, or folders of them, to use instead of `--data`.
        data: dataset as in `keras-vit train`; by default the data of the run.
        split: train, validation or test.
        count: greatest number of images for the attention distance and the token norms. Files of
            `--images` are chosen at equal distances. The other figures show some of these images.
        data_dir: directory of TensorFlow Datasets.
    """

    model: ModelArgument
    out: pathlib.Path
    images: tuple[pathlib.Path, ...] = ()
    data: str | None = None
    split: str = "test"
    count: int = 128
    image_size: ImageSize = None
    data_dir: pathlib.Path | None = None

    def run(self):
        """Draw the figures, and print the path of the page."""
        from keras_vit.experiments.model_and_data import open_trained
        from keras_vit.inspection.figures.drawing import check_matplotlib
        from keras_vit.inspection.report import write_report

        check_matplotlib()
        trained = open_trained(self.model, self.image_size)
        images = self.read(trained)
        print(f"Inspecting {trained.model.name} on {len(images)} images")
        verbose = "auto" if sys.stdout.isatty() else 0
        page = write_report(trained.model, images, self.out, verbose=verbose)
        print(f"The figures are in {page.parent}, and all of them on one page: {page}")

    def read(self, trained):
        """Return the images, as an array."""
        from keras_vit.data.pipeline import first_images, load
        from keras_vit.models.image_model import image_spec_of

        size, image_spec = trained.model.input_shape[1:3], image_spec_of(trained.model)
        if self.images:
            return self.read_files(size, image_spec)
        classes = trained.run.get("classes") if self.data is None else None
        options = {"classes": classes, "data_dir": self.data_dir, "image_spec": image_spec}
        options["upright"] = trained.is_upright
        # Shuffle, because the first images of a folder all have the same class.
        options |= {"batch_size": min(self.count, 32), "training": True}
        dataset = load(trained.name_of(self.data), self.split, size, **options)
        images, _ = first_images(dataset, self.count)
        if len(dataset.info.skipped):
            print(dataset.info.skipped)
        return images

    def read_files(self, size, image_spec):
        """Return at most `count` of the files, as an array."""
        from keras_vit.serving.image_files import list_image_files, preprocess_files, read_image

        files = evenly_spaced(list_image_files(self.images), self.count)
        encoded = (read_image(file, image_spec) for file in files)
        return preprocess_files(encoded, size, image_spec)
