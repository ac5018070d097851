"""`keras-vit deduplicate`: find copies of test images in training data."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from keras_vit.cli.command import Command, as_shard, check_new_file
from keras_vit.core.text import name_some, printable
from keras_vit.data.sources.kinds import absolute_name, has_path

# Numbers of pairs or groups to print and to draw.
_SHOWN = 5
_DRAWN = 20
# Flags that need hashes of images, and cannot be used with features.
_HASH_OPTIONS = ("train_split", "test_split", "max_distance", "picture", "hashes", "shard")


@dataclasses.dataclass
class Deduplicate(Command):
    """Find the training images that are in a test set, as in the paper, to leave them out.

    Without a test set, find copies within the dataset; the first image of each group is kept.

    Example: keras-vit deduplicate folder:photos cifar10 cifar100 --output exclude.txt

    Args:
        train: the dataset to search, as in `keras-vit train`; or a directory of features,
            written by `predict --outputs features`, to compare features instead of hashes.
        test: test datasets, or directories of features, to compare with; none to find copies within
            the dataset.
        output: new file of the ids of the images to leave out, one per line.
        train_split: the split to search: train, validation, test, or several joined with +. By
            default train+validation, or all images of a dataset without splits.
        test_split: the split of the test sets. By default test, or all images of a dataset without
            splits.
        data_dir: directory of TensorFlow Datasets.
        max_distance: images are copies if at most this many of the 144 bits of their perceptual
            hashes differ; by default 22. A smaller number misses copies, a greater number finds
            images that are only similar.
        similarity: least cosine similarity of features, by default 0.95.
        picture: new PNG file of the least similar pairs, or of the largest groups of copies.
        hashes: directory for the hashes of the searched images; needs test sets. The hashes then
            need not fit into memory, and the same command resumes after a stop.
        shard: I/N: only write the I-th of every N files of `--hashes`, as task I of an array of N
            jobs. Then run the command without `--shard` to compare the images.
    """

    train: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TRAIN")]
    test: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEST ...]")]
    output: pathlib.Path
    train_split: str | None = None
    test_split: str | None = None
    data_dir: pathlib.Path | None = None
    max_distance: int | None = None
    similarity: float | None = None
    picture: pathlib.Path | None = None
    hashes: pathlib.Path | None = None
    shard: str | None = None

    def run(self):
        """Write the ids, and print and draw some of the pairs or groups."""
        from keras_vit.data.deduplication.hashes import HashParts
        from keras_vit.evaluation.feature_store import is_store

        # Check the arguments before hours of hashing.
        shard = self.shard and as_shard(self.shard)
        check_new_file(self.output, self.output.suffix)
        if self.picture is not None:
            check_new_file(self.picture, ".png")
        has_features = is_store(self.train)
        unfit = _HASH_OPTIONS if has_features else ("similarity",)
        refused = [name for name in unfit if getattr(self, name) is not None]
        refused += ["no hashes"] if shard and self.hashes is None else []
        refused += ["no test set"] if not self.test and (has_features or self.hashes) else []
        if refused:
            raise ValueError(
                "`similarity` needs features, all other options need datasets of images, `shard` "
                "needs `hashes`, and features and `hashes` need a test set. "
                f"Received: {', '.join(refused)}"
            )
        if has_features:
            self._compare_features()
            return
        train = source = self.open(self.train, self.train_split, "train+validation")
        if self.hashes is not None:
            train = HashParts(source, self.hashes, absolute_name(self.train))
            written = train.write_missing(shard or (0, 1))
        if shard:
            print(f"{written} files of hashes written to {self.hashes}, nothing compared")
        elif self.test:
            self._find_duplicates(source, train)
        else:
            self._find_groups(source)

    def open(self, name, split, default):
        """Return the `Source` of a dataset, and print how many of its images are used."""
        from keras_vit.data.pipeline import find_all_splits, find_source

        whole = find_all_splits(name, self.data_dir) if has_path(name) else None
        if whole is not None and whole.has_no_splits and split is None:
            print(f"{name}: {whole.num_examples} images (all images)")
            return whole
        source = find_source(name, split or default, data_dir=self.data_dir)
        total = f" of {whole.num_examples}" if whole is not None and whole.has_no_splits else ""
        print(f"{name}: {source.num_examples}{total} images (split {split or default})")
        return source

    def _find_duplicates(self, source, train):
        from keras_vit.data.deduplication.copies import draw_pairs, find_duplicates

        tests = [self.open(name, self.test_split, "test") for name in self.test]
        duplicates = find_duplicates(train, tests, **self._options())
        self._write(duplicates, source.num_examples)
        # Print the least similar pairs, to show whether `max_distance` is right.
        for pair in duplicates.pairs[: -_SHOWN - 1 : -1]:
            ids = f"{printable(pair.train_id)} is {printable(pair.test_id)}"
            print(f"  {ids} of {self.test[pair.test_set]} ({pair.distance} bits differ)")
        if self.picture is not None:
            draw_pairs(duplicates.pairs[: -_DRAWN - 1 : -1], source, tests, self.picture)

    def _find_groups(self, source):
        from keras_vit.data.deduplication.copies import draw_groups, find_groups

        copies = find_groups(source, **self._options())
        self._write(copies, source.num_examples)
        largest = max(map(len, copies.groups), default=0)
        print(f"groups of copies: {len(copies.groups)}, images in the largest: {largest}")
        print(f"groups that have images with different labels: {len(copies.mixed)}")
        for group in copies.mixed[:_SHOWN]:
            print(f"  {name_some(group, _SHOWN)}")
        if self.picture is not None:
            draw_groups(copies.groups[:_DRAWN], source, self.picture)

    def _compare_features(self):
        from keras_vit.evaluation.feature_store import check_same_model, find_similar, read_features

        train, *tests = map(read_features, (self.train, *self.test))
        check_same_model(train, *tests)
        similar = find_similar(train, tests, 0.95 if self.similarity is None else self.similarity)
        self._write(similar, len(train.ids))
        for similarity, id, number, other in similar.pairs[: -_SHOWN - 1 : -1]:
            ids = f"{printable(id)} is {printable(other)}"
            print(f"  {ids} of {self.test[number]} (similarity {similarity:.3f})")

    def _options(self):
        return {} if self.max_distance is None else {"max_distance": self.max_distance}

    def _write(self, duplicates, num_images):
        """Write the ids of copies, and print how many there are and what was not compared."""
        from keras_vit.data.deduplication.copies import write_ids

        write_ids(duplicates, self.output)
        count = len(duplicates.ids)
        print(f"{count} of {num_images} images {duplicates.reason}, written to {self.output}")
        if hasattr(duplicates, "skipped"):
            print(f"{len(duplicates.skipped)} images were skipped because they cannot be decoded")
            print(f"{len(duplicates.blank)} images of one color were not compared")
