"""`keras-vit deduplicate`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

_SHOWN = 5
_DRAWN = 20


@dataclasses.dataclass
class Deduplicate:
    """Find the training images that are in a test set, as in the paper, to leave them out.

    Example: keras-vit deduplicate folder:photos cifar10 cifar100 --output exclude.txt
    """

    train: Annotated[str, tyro.conf.Positional]
    """The dataset to search, as in `keras-vit train`."""
    test: Annotated[tuple[str, ...], tyro.conf.Positional]
    """One or more test datasets to compare with."""
    output: pathlib.Path
    """A new file of the ids of the images to leave out, one per line."""
    train_split: str = "train+validation"
    """The split to search: train, validation, test, or several joined with +."""
    test_split: str = "test"
    """The split of the test sets."""
    data_dir: pathlib.Path | None = None
    """Directory of TensorFlow Datasets."""
    max_distance: int | None = None
    """Images are copies if at most this many of the 144 bits of their perceptual hashes differ; by
    default 22. A smaller number misses copies, a greater one finds images that are only similar."""
    picture: pathlib.Path | None = None
    """A new PNG file of the least similar of the pairs that were found."""

    def run(self):
        """Write the ids, and show some of the pairs."""
        from keras_vit.cli.data import describe_part
        from keras_vit.data.datasets import find_source
        from keras_vit.data.deduplication.groups import (
            MAX_DISTANCE,
            draw_pairs,
            find_duplicates,
            write_ids,
        )

        if not self.test:
            raise ValueError("`test` must be one or more datasets. Received: none")
        # Hashing may take an hour, so check the paths first.
        for name, path in (("output", self.output), ("picture", self.picture)):
            if path is not None and (path.exists() or not path.parent.is_dir()):
                state = "exists" if path.exists() else "is in no directory"
                raise ValueError(
                    f"`--{name}` must be a new file in a directory. "
                    f"Received: {str(path)!r}, which {state}"
                )
        train = find_source(self.train, self.train_split, data_dir=self.data_dir)
        tests = [find_source(name, self.test_split, data_dir=self.data_dir) for name in self.test]
        max_distance = MAX_DISTANCE if self.max_distance is None else self.max_distance
        for name, source in zip(self.test, tests, strict=True):
            if part := describe_part(name, source, self.test_split):
                print(f"{part}; `--test-split train+validation+test` compares all")
        found = find_duplicates(train, tests, max_distance)
        write_ids(found, self.output)
        print(f"{len(found)} of {train.num_examples} images are in a test set")
        # The least similar ones, by which the distance can be judged.
        for pair in found.pairs[: -_SHOWN - 1 : -1]:
            name = self.test[pair.test_set]
            print(f"  {pair.train_id} is {pair.test_id} of {name} ({pair.distance} bits differ)")
        if len(found.pairs) > _SHOWN:
            print(f"  and {len(found.pairs) - _SHOWN} more pairs")
        print(f"{len(found.skipped)} images were skipped because they cannot be decoded")
        print(f"{len(found.blank)} images of one color were not compared")
        print(f"Written to {self.output}")
        if self.picture is not None:
            draw_pairs(found.pairs[: -_DRAWN - 1 : -1], train, tests, self.picture)
            print(f"Drawn to {self.picture}")
