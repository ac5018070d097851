"""`keras-vit data`: show a dataset, or write it as TFRecord files."""

import dataclasses
import itertools
import pathlib
import time
from typing import Annotated, Literal

import tyro

from keras_vit.cli.command import Command, plain_table
from keras_vit.data.images.preprocessing import AUGMENTATIONS
from keras_vit.data.sources.splits import SPLITS

# Number of classes whose names are printed.
SHOWN = 10
MASKS_SHOWN = 6
# Greatest number of images that are read for the contact sheet.
IMAGES_READ = 200


@dataclasses.dataclass
class Data(Command):
    """Show the sizes, classes and sample images of a dataset, and the speed of its pipeline.

    Example: keras-vit data folder:photos --augmentation medium1 --picture photos.png

    Args:
        name: `digits`, `folder:PATH`, `csv:PATH`, `tfds:NAME[:CONFIG]`, `tfrecord:PATTERN`,
            multi-label `tfrecord-lists:PATTERN`, `parquet:PATTERN`, `webdataset:PATTERN`,
            `hf:NAME[:CONFIG]`, `objectnet:DIR`, `masks:DIR`, or one of the paper's datasets.
            Without a name, the paper's datasets are listed.
        picture: PNG file of a contact sheet: images as in training and as in evaluation, or, for a
            dataset with masks, images with their masks. An existing file is replaced.
        image_size: side of the square images, in pixels.
        batch_size: images per batch in the measurement.
        min_crop_area: smallest share of the image's area in a random crop; None for no crop.
        flip: flip training images left and right at random.
        augmentation: augmentation of training images, as in AugReg.
        records: write the dataset to this directory as TFRecord files, and do nothing else.
        num_files: number of TFRecord files per split.
        data_dir: directory of TensorFlow Datasets.
        check: decode all images at the end, to report images that cannot be decoded.
        image_channels: number of channels of the images.
        value_range: the stored values that become -1 and 1: `dtype`, a pair, or `percentiles` or
            `deviations` of the training images (see `keras-vit train`), which are printed.
        statistics: print the mean and the standard deviation of each channel of the training
            images, for pixels in [0, 1].
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    picture: pathlib.Path | None = None
    image_size: int = 224
    batch_size: int = 32
    min_crop_area: float | None = 0.05
    flip: bool = True
    augmentation: Literal[tuple(AUGMENTATIONS)] = "none"
    records: pathlib.Path | None = None
    num_files: int = 1
    data_dir: pathlib.Path | None = None
    check: bool = True
    image_channels: int = 3
    value_range: tuple[float, float] | str | None = None
    statistics: bool = False

    @property
    def needs_keras(self):
        """Whether the command reads images; without a name it only lists datasets."""
        return self.name is not None

    def run(self):
        """Print, draw or write the dataset, or print the list of datasets."""
        if self.name is None:
            list_datasets()
            return
        splits = self.find_splits()
        if self.records is not None:
            self.write(splits)
            return
        first = "train" if "train" in splits else next(iter(splits))
        self._measure(splits[first])
        train = self.load(first, training=True)
        if self.picture is not None:
            self._draw(train, *list(splits.items())[-1])
            print(f"picture: {self.picture}")
        print(f"training pipeline: {reading_speed(train):.0f} images/s on this machine")
        if self.check:
            self._decode_all(splits)

    def _measure(self, source):
        """Measure the range of values and the statistics of images, if they are asked for."""
        from keras_vit.data.statistics import MEASURED_RANGES, measure_range, measure_statistics

        if self.value_range in MEASURED_RANGES:
            self.value_range = measure_range(source, self.image_channels, self.value_range)
            print(f"value range: {self.value_range}")
        if self.statistics:
            measured = measure_statistics(source, self._image_spec())
            mean, deviation = (tuple(values.round(5).tolist()) for values in measured)
            rows = [[*map(str, row)] for row in zip(range(len(mean)), mean, deviation, strict=True)]
            print(plain_table(("channel", "mean", "deviation"), rows))
            print(f"{mean=}, {deviation=}")

    def _image_spec(self):
        from keras_vit.core.image_spec import ImageSpec

        return ImageSpec(channels=self.image_channels, value_range=self.value_range)

    def _draw(self, train, evaluated, source):
        """Draw masks, or images of the training data and of the split `evaluated`."""
        from keras_vit.data.pipeline import images_of_classes
        from keras_vit.data.sources.masks import examples_of
        from keras_vit.inspection.figures.drawing import draw_contact_sheet, draw_masks

        if source.has_masks:
            examples = itertools.islice(examples_of(train.info.dataset.source), MASKS_SHOWN)
            draw_masks(*zip(*examples, strict=True), source.class_names, self.picture)
            return
        # Evaluation images are in the order of their classes: choose some from all classes.
        share = min(1.0, IMAGES_READ / 2 / source.num_examples)
        rows = {"as trained on": images_of_classes(train)}
        rows["as evaluated on"] = images_of_classes(self.load(evaluated, fraction=share))
        draw_contact_sheet(rows, train.class_names, self.picture)

    def _decode_all(self, splits):
        """Decode all images, and print how many cannot be decoded or are not upright."""
        import tqdm

        from keras_vit.data.images.decoding import is_turned
        from keras_vit.data.left_out import explaining_errors

        for split, source in splits.items():
            batches = self.load(split)
            with (
                explaining_errors(batches),
                tqdm.tqdm(total=source.num_examples, desc=split) as bar,
            ):
                for images, _ in batches:
                    bar.update(len(images))
            skipped = batches.info.skipped
            print(f"{split}: {skipped if len(skipped) else 'all images can be decoded'}")
            encoded = source.encoded().ignore_errors().as_numpy_iterator()
            if turned := sum(is_turned(image) for _, image, _ in encoded):
                print(f"{split}: {turned} images are not upright by EXIF; `--upright` turns them")

    def find_splits(self):
        """Return the splits of the dataset, and print their sizes and classes."""
        from keras_vit.core.text import name_some
        from keras_vit.data.pipeline import find_source, splits_of

        names = splits_of(self.name)
        splits = {name: find_source(self.name, name, data_dir=self.data_dir) for name in names}
        for name, source in splits.items():
            print(f"{name}: {source.num_examples} images")
        print_left_out(next(iter(splits.values())).left_out)
        classes, kind = source.class_names, "values" if source.has_values else "classes"
        print(f"{len(classes)} {kind}: {name_some(classes, SHOWN)}")
        return splits

    def load(self, split, training=False, fraction=1.0):
        """Load a split as in training or evaluation; skip any number of broken images."""
        from keras_vit.data.pipeline import load
        from keras_vit.data.sources.named_datasets import (
            changes_that_keep_labels,
            check_augmentation,
        )

        options = {"data_dir": self.data_dir, "fraction": fraction, "max_skipped": 1.0}
        options["image_spec"] = self._image_spec()
        if training:
            check_augmentation(self.name, self.augmentation)
            options |= {"training": True, "repeat": True, "augmentation": self.augmentation}
            options |= changes_that_keep_labels(self.name, self.min_crop_area, self.flip)
        return load(self.name, split, self.image_size, self.batch_size, **options)

    def write(self, splits):
        """Write TFRecord files."""
        from keras_vit.data.digest import scan_records
        from keras_vit.data.sources.records import write_records

        if any(source.has_masks for source in splits.values()):
            raise ValueError("`--records` needs data without masks. Received: data with masks")
        for name, source in splits.items():
            paths = write_records(source, self.records, name, self.num_files)
            written = sum(scan_records(path)[0] for path in paths)
            print(f"wrote {written} images to {len(paths)} files, {paths[0]} ...")
        print(f"Next: keras-vit data 'tfrecord:{self.records}/{{split}}-*'")


def print_left_out(left_out):
    """Print how many files of a dataset are left out, by reason."""
    from keras_vit.data.sources.folder import describe_left_out

    if left_out:
        print(describe_left_out(left_out))


def list_datasets():
    """Print the table of the paper's datasets."""
    from keras_vit.data.sources.named_datasets import DATASETS

    rows = [
        (each.name, str(each.num_classes), *(each.splits.get(split, "-") for split in SPLITS))
        for each in DATASETS.values()
    ]
    print(plain_table(("dataset", "classes", *SPLITS), rows))


def reading_speed(dataset, seconds=2.0):
    """Return the images per second of a dataset, after one batch to warm up."""
    from keras_vit.data.left_out import explaining_errors

    seen = 0
    with explaining_errors(dataset):
        batches = iter(dataset)
        next(batches)
        start = time.perf_counter()
        for images, _ in itertools.islice(batches, 10_000):
            seen += len(images)
            if time.perf_counter() - start > seconds:
                break
    return seen / (time.perf_counter() - start)
