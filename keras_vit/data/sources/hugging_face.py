"""Datasets of the package `datasets` of Hugging Face (`pip install 'keras-vit-zoo[datasets]'`)."""

import pathlib

from keras_vit.data.sources.examples import (
    bytes_of,
    choose_examples,
    find_columns,
    numbered_source,
    recorded_class_names,
)
from keras_vit.data.sources.splits import SPLIT_NAMES


def hugging_face(name, split, shard=(0, 1)):
    """Find the images of a split of a dataset; the package `datasets` does not decode them.

    Args:
        name: a directory that `save_to_disk` wrote, or a name as for `datasets.load_dataset`: a
            repository of the Hub or another directory. `:CONFIG` after the name chooses a
            configuration, and `#COLUMN` the column of labels: see `find_columns`. A dataset with
            only `train` is divided: every ten consecutive rows 7 : 1 : 2.
        split: as in `load`.
        shard: as in `load`.

    Returns:
        A `Source`; the id of an example is `SPLIT#ROW`.

    Raises:
        ValueError: if there is no split `train`, or the splits have different class names; or as
            `find_columns`.
    """
    import datasets

    name, _, label = name.partition("#")
    name, _, config = name.partition(":")
    path = pathlib.Path(name).expanduser()
    if any((path / file).is_file() for file in ("state.json", "dataset_dict.json")):
        splits = datasets.load_from_disk(path, keep_in_memory=False)
    else:
        name = str(path) if path.exists() else name
        splits = datasets.load_dataset(name, config or None, keep_in_memory=False)
    if isinstance(splits, datasets.Dataset):
        splits = {"train": splits}
    named = {key: [n for n in known if n in splits] for key, known in SPLIT_NAMES.items()}
    present = {key: known for key, known in named.items() if known}
    schemas = [rows.features.arrow_schema for rows in splits.values()]
    image, label, names = find_columns(schemas[0], repr(name), label)
    if any(recorded_class_names(schema, label) != names for schema in schemas):
        raise ValueError(
            "All splits of a dataset must have the same class names in the same order. "
            f"Received: {name!r}"
        )

    def read_labels(split):
        return splits[split].with_format("arrow").select_columns([label])[:][label].to_pylist()

    chosen = choose_examples(present, split, read_labels, names)
    images = {n: splits[n].select_columns([image]).with_format("arrow") for n in chosen.files}

    def read(name, row):
        encoded = bytes_of(images[name][row][image][0].as_py())
        if not encoded:
            raise ValueError("The dataset has no bytes of this image, but perhaps its path")
        return encoded

    paths = tuple(file["filename"] for name in chosen.files for file in splits[name].cache_files)
    options = {"record_files": paths, "has_no_splits": [*present] == ["train"]}
    return numbered_source(chosen, "{}#{}".format, read, shard, **options)
