"""`keras-vit deduplicate`."""

import dataclasses
import os
import pathlib
from typing import Annotated

import tyro

from keras_vit.core.text import printable
from keras_vit.data.sources.kinds import absolute_name, has_path

_SHOWN = 5
_DRAWN = 20


@dataclasses.dataclass
class Deduplicate:
    """Find the training images that are in a test set, as in the paper, to leave them out.

    Without a test set, find images of one set that are copies of each other: the first is kept.

    Example: keras-vit deduplicate folder:photos cifar10 cifar100 --output exclude.txt
    """

    train: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TRAIN")]
    """The dataset to search, as in `keras-vit train`; or a directory of features that `predict
    --outputs features` wrote, to compare features and not hashes."""
    test: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEST ...]")]
    """Test datasets, or directories of features, to compare with; none to find copies within the
    dataset."""
    output: pathlib.Path
    """A new file of the ids of the images to leave out, one per line."""
    train_split: str | None = None
    """The split to search: train, validation, test, or several joined with +. By default
    train+validation, and all images of a folder, or of files, without splits."""
    test_split: str | None = None
    """The split of the test sets. By default test, and all images of a folder, or of files,
    without splits."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    max_distance: int | None = None
    """Images are copies if at most this many of the 144 bits of their perceptual hashes differ; by
    default 22. A smaller number misses copies, a greater one finds images that are only similar."""
    similarity: float | None = None
    """Least cosine similarity of features, by default 0.95."""
    picture: pathlib.Path | None = None
    """A new PNG file of the least similar of the pairs that were found, or of the largest groups of
    copies."""
    hashes: pathlib.Path | None = None
    """Directory for the hashes of the searched images. They need not fit into memory then, and the
    same command goes on after it was stopped."""
    shard: str | None = None
    """I/N: only write the I-th of every N files of `--hashes`, as task I of an array of N jobs; the
    command without `--shard` then compares them."""

    def run(self):
        """Write the ids, and show some of the pairs or groups."""
        from keras_vit.cli.predict import as_shard
        from keras_vit.evaluation.stored import is_store

        shard = None if self.shard is None else as_shard(self.shard)
        self._check_flags()
        if is_store(self.train):
            self._compare_features()
            return
        train = self._open(self.train, self.train_split, "train+validation")
        if shard is not None:
            write_parts(self._parts(train), shard)
        elif self.test:
            self._find_duplicates(train)
        else:
            self._find_groups(train)

    def _check_flags(self):
        """Check what can be checked before hashing, which may take hours."""
        for name, path in (("output", self.output), ("picture", self.picture)):
            if path is not None and (path.exists() or not path.parent.is_dir()):
                state = "exists" if path.exists() else "is in no directory"
                raise ValueError(
                    f"`--{name}` must be a new file in a directory. "
                    f"Received: {str(path)!r}, which {state}"
                )
            if path is not None and not os.access(path.parent, os.W_OK):
                raise ValueError(
                    f"`--{name}` must be in a directory that can be written. "
                    f"Received: {str(path)!r}"
                )
        if self.shard is not None and self.hashes is None:
            raise ValueError("`--shard` is for `--hashes`. Received: no --hashes")
        for name in ("hashes", "test_split"):
            if not self.test and getattr(self, name) is not None:
                raise ValueError(
                    f"`--{name.replace('_', '-')}` is for test sets. Received: no test set"
                )
        from keras_vit.evaluation.stored import is_store

        if self.similarity is not None and not is_store(self.train):
            raise ValueError("`--similarity` is for features. Received: a dataset")
        names = {absolute_name(name) for name in self.test}
        if (
            self.train_split is None
            and self.test_split is None
            and absolute_name(self.train) in names
        ):
            raise ValueError(
                "`test` must be other datasets than `train`, unless the splits are given: without "
                f"a test set, copies within one set are found. Received: {self.train!r} twice"
            )

    def _open(self, name, split, default):
        """Find a dataset and print how much of it is used."""
        from keras_vit.data.loading import find_every, find_source

        whole = find_every(name, self.data_dir) if has_path(name) else None
        if whole is not None and whole.has_no_splits and split is None:
            print(f"{name}: {whole.num_examples} images (all images)")
            return whole
        source = find_source(name, split or default, data_dir=self.data_dir)
        of = f" of {whole.num_examples}" if whole is not None and whole.has_no_splits else ""
        print(f"{name}: {source.num_examples}{of} images (split {split or default})")
        return source

    def _parts(self, train):
        from keras_vit.data.deduplication.hashes import HashParts

        return HashParts(train, self.hashes, absolute_name(self.train))

    def _find_duplicates(self, train):
        from keras_vit.data.deduplication.copies import find_duplicates
        from keras_vit.data.deduplication.pictures import draw_pairs
        from keras_vit.data.exclusion import write_ids

        tests = [self._open(name, self.test_split, "test") for name in self.test]
        searched = train
        if self.hashes is not None:
            searched = self._parts(train)
            write_parts(searched)
        found = find_duplicates(searched, tests, **self._options())
        write_ids(found, self.output)
        print(f"{len(found.pairs)} of {train.num_examples} images are in a test set")
        # The least similar ones, by which the distance can be judged.
        for pair in found.pairs[: -_SHOWN - 1 : -1]:
            name = self.test[pair.test_set]
            ids = f"{printable(pair.train_id)} is {printable(pair.test_id)}"
            print(f"  {ids} of {name} ({pair.distance} bits differ)")
        if len(found.pairs) > _SHOWN:
            print(f"  and {len(found.pairs) - _SHOWN} more pairs")
        self._finish(found)
        if self.picture is not None:
            draw_pairs(found.pairs[: -_DRAWN - 1 : -1], train, tests, self.picture)
            print(f"Drawn to {self.picture}")

    def _compare_features(self):
        from keras_vit.data.exclusion import write_ids
        from keras_vit.evaluation.stored import check_same_model, find_similar, read_features

        flags = ("train_split", "test_split", "max_distance", "picture", "hashes", "shard")
        given = [name for name in flags if getattr(self, name) is not None]
        if given or not self.test:
            raise ValueError(
                "Features need other features to be compared with, and no flags of hashes. "
                f"Received: {', '.join(given) or 'no test set'}"
            )
        train, *tests = map(read_features, (self.train, *self.test))
        check_same_model(train, *tests)
        found = find_similar(train, tests, 0.95 if self.similarity is None else self.similarity)
        write_ids(found, self.output)
        print(f"{len(found.ids)} of {len(train.ids)} images are in a test set")
        for similarity, id, number, other in found.pairs[: -_SHOWN - 1 : -1]:
            ids = f"{printable(id)} is {printable(other)}"
            print(f"  {ids} of {self.test[number]} (similarity {similarity:.3f})")
        print(f"Written to {self.output}")

    def _find_groups(self, source):
        from keras_vit.core.text import name_some
        from keras_vit.data.deduplication.copies import find_groups
        from keras_vit.data.deduplication.pictures import draw_groups
        from keras_vit.data.exclusion import write_ids

        found = find_groups(source, **self._options())
        write_ids(found, self.output)
        largest = max(map(len, found.groups), default=0)
        print(f"groups of copies: {len(found.groups)}, images in the largest: {largest}")
        print(f"groups that have images with different labels: {len(found.mixed)}")
        for group in found.mixed[:_SHOWN]:
            print(f"  {name_some(group, _SHOWN)}")
        print(f"{len(found.ids)} of {source.num_examples} images are copies of others")
        self._finish(found)
        if self.picture is not None:
            draw_groups(found.groups[:_DRAWN], source, self.picture)
            print(f"Drawn to {self.picture}")

    def _options(self):
        return {} if self.max_distance is None else {"max_distance": self.max_distance}

    def _finish(self, found):
        """Print what was not compared, and where the ids are."""
        print(f"{len(found.skipped)} images were skipped because they cannot be decoded")
        print(f"{len(found.blank)} images of one color were not compared")
        print(f"Written to {self.output}")


def write_parts(parts, shard=None):
    """Write the missing hashes of a shard, `(index, count)`, or of all images."""
    import tqdm

    mine = range(parts.count) if shard is None else range(shard[0], parts.count, shard[1])
    missing = parts.missing(shard or (0, 1))
    if len(missing) < len(mine):
        print(f"{len(mine) - len(missing)} of {len(mine)} files of hashes are there already")
    with tqdm.tqdm(desc="train", total=parts.size(missing), unit=" images") as progress:
        for part in missing:
            parts.write(part, progress.update)
    if shard is not None:
        print(f"{len(missing)} files of hashes written to {parts.directory}, nothing compared")
