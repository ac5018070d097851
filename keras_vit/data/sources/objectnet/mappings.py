"""From the folders of ObjectNet to the classes of ImageNet, by the files that come with it.

    folder -> label of ObjectNet -> names in ImageNet -> lines of a list of names -> outputs

The order of the list of names is not that of the outputs; a fourth file has both.
"""

import json

NUM_CLASSES = 1000
# Folder -> label of ObjectNet.
LABELS = "folder_to_objectnet_label.json"
# Label of ObjectNet -> names in ImageNet, for the 113 classes that ImageNet has, too.
NAMES = "objectnet_to_imagenet_1k.json"
_SEPARATOR = "; "
# One name in ImageNet per line.
LINES = "imagenet_to_label_2012_v2"
# Output, in the usual order of sorted synsets -> line, counted from 0.
OUTPUTS = "pytorch_to_imagenet_2012_id.json"


def read_mappings(folder):
    """Read which classes of ImageNet each folder of images shows.

    Args:
        folder: `pathlib.Path` of the folder `mappings` of ObjectNet.

    Returns:
        A dictionary from names of folders to sorted tuples of outputs, from 0 to 999; the tuple of
        a class that ImageNet does not have is empty.

    Raises:
        ValueError: if a file is missing or damaged, or the files contradict one another.

    Reference:
        `get_metadata` of `src/datasets/objectnet.py` in mlfoundations/wise-ft.
    """
    labels, names = (_read_texts(folder / file) for file in (LABELS, NAMES))
    outputs = _read_outputs(folder)
    if unknown := sorted(set(names) - set(labels.values())):
        _refuse(folder / NAMES, f"the label {unknown[0]!r}, which {LABELS} does not have")
    found = {}
    for folder_name, label in labels.items():
        own = names[label].split(_SEPARATOR) if label in names else ()
        found[folder_name] = tuple(
            sorted(_output_of(folder / NAMES, label, name, outputs) for name in own)
        )
    return found


def _output_of(file, label, name, outputs):
    known = outputs.get(name, ())
    if not known:
        _refuse(file, f"{name!r} for {label!r}, which is no line of {LINES}")
    # Two classes are called "crane", and nothing shows which one is meant. None of ObjectNet's 113
    # classes has such a name: one that does is not from the published files. To take both outputs
    # would count wrong predictions as right.
    if len(known) > 1:
        _refuse(file, f"{name!r} for {label!r}, which is a line of {LINES} {len(known)} times")
    return known[0]


def _read_outputs(folder):
    """Return a dictionary from names in ImageNet to lists of the outputs with this name."""
    lines = _read(folder / LINES).strip().split("\n")
    if len(lines) != NUM_CLASSES:
        _refuse(folder / LINES, f"{len(lines)} lines instead of {NUM_CLASSES}")
    places = _read_json(folder / OUTPUTS)
    everything = list(range(NUM_CLASSES))
    values = list(places.values())
    is_whole = all(type(value) is int for value in values) and sorted(values) == everything
    if not is_whole or set(places) != set(map(str, everything)):
        _refuse(folder / OUTPUTS, "no line of its own for each of the outputs 0 to 999")
    found = {}
    for output in everything:
        found.setdefault(lines[places[str(output)]].strip(), []).append(output)
    return found


def _read_texts(file):
    found = _read_json(file)
    if not found or not all(isinstance(value, str) for value in found.values()):
        _refuse(file, "no object of strings")
    return found


def _read_json(file):
    try:
        found = json.loads(_read(file))
    except json.JSONDecodeError as error:
        _refuse(file, str(error))
    if not isinstance(found, dict):
        _refuse(file, "no JSON object")
    return found


def _read(file):
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(file, error.strerror if isinstance(error, OSError) else str(error))


def _refuse(file, problem):
    raise ValueError(
        "`mappings/` in `objectnet:DIR` must have the four files of the download, unchanged. "
        f"Received: {str(file)!r} ({problem})"
    )
