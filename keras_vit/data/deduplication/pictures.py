"""Pictures of the duplicates that were found, by which people judge them."""

import numpy as np
from PIL import Image, ImageDraw

from keras_vit.data.images.decoding import decode

# Sides of an image in the picture, and height of the text above it.
_TILE, _ABOVE = 160, 50
# Images in a row, and the number of characters of an id that fit below a tile.
_IN_A_ROW, _CHARACTERS = 8, 25


def draw_pairs(pairs, train, tests, path):
    """Draw each training image next to the similar one of the test set.

    Args:
        pairs: list of `Duplicate`s.
        train: `Source` of the training images.
        tests: list of the `Source`s of the test sets.
        path: path of the PNG file to write.
    """
    rows = [
        (f"{pair.distance} bits", [(0, pair.train_id), (1 + pair.test_set, pair.test_id)])
        for pair in pairs
    ]
    _draw(rows, [train, *tests], path)


def draw_groups(groups, source, path):
    """Draw the first images of each group of copies in a row.

    Args:
        groups: list of groups, tuples of ids.
        source: the `Source` of the images.
        path: path of the PNG file to write.
    """
    rows = [(f"{len(group)} images", [(0, id) for id in group[:_IN_A_ROW]]) for group in groups]
    _draw(rows, [source], path)


def _draw(rows, sources, path):
    """Draw rows of a heading and of `(index of a source, id)`, with the id above each image."""
    tiles = [
        _read_tiles(source, {id for _, images in rows for of, id in images if of == place})
        for place, source in enumerate(sources)
    ]
    columns = max((len(images) for _, images in rows), default=1)
    sheet = Image.new("RGB", (columns * _TILE, max(len(rows), 1) * (_ABOVE + _TILE)), "white")
    drawing = ImageDraw.Draw(sheet)
    for row, (heading, images) in enumerate(rows):
        top = row * (_ABOVE + _TILE)
        drawing.text((2, top + 2), heading, fill="black")
        for column, (place, id) in enumerate(images):
            # Its end, in two lines as wide as the tile.
            text = id.encode("ascii", "replace").decode()[-2 * _CHARACTERS :]
            text = f"{text[:_CHARACTERS]}\n{text[_CHARACTERS:]}"
            drawing.text((column * _TILE + 2, top + 20), text, fill="black")
            sheet.paste(tiles[place][id], (column * _TILE, top + _ABOVE))
    sheet.save(path, "PNG")


def _read_tiles(source, ids):
    numbers = np.array(sorted(source.find_numbers(ids)), "int64")
    return {
        source.find_id(int(number)): Image.fromarray(
            source.pixels(decode(source.read(payload))).numpy()
        ).resize((_TILE, _TILE))
        for number, payload, _ in (source.some(numbers) if len(numbers) else ())
    }
