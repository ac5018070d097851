"""Pictures of the duplicates that were found, by which people judge them."""

import numpy as np
from PIL import Image, ImageDraw

from keras_vit.data.images.decoding import decode

_TILE, _CAPTION = 160, 30
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
    ours = _read_tiles(train, {pair.train_id for pair in pairs})
    theirs = [
        _read_tiles(source, {pair.test_id for pair in pairs if pair.test_set == place})
        for place, source in enumerate(tests)
    ]
    rows = []
    for pair in pairs:
        heading = f"{pair.distance} bits: {pair.train_id}\n{pair.test_id}"
        tiles = [ours[pair.train_id], theirs[pair.test_set][pair.test_id]]
        rows.append((heading, [(tile, "") for tile in tiles]))
    _draw(rows, 2, _CAPTION, path)


def draw_groups(groups, source, path):
    """Draw the first images of each group of copies in a row.

    Args:
        groups: list of groups, tuples of ids.
        source: the `Source` of the images.
        path: path of the PNG file to write.
    """
    tiles = _read_tiles(source, {id for group in groups for id in group[:_IN_A_ROW]})
    rows = [
        (f"{len(group)} images", [(tiles[id], _in_two_lines(id)) for id in group[:_IN_A_ROW]])
        for group in groups
    ]
    columns = max((len(tiles) for _, tiles in rows), default=1)
    # The number of images, then two lines of ids, above the tiles.
    _draw(rows, columns, 3 * _CAPTION // 2 + 5, path)


def _draw(rows, columns, above, path):
    """Draw rows of a heading and of tiles, each with a text above it."""
    height = above + _TILE
    sheet = Image.new("RGB", (columns * _TILE, max(len(rows), 1) * height), "white")
    drawing = ImageDraw.Draw(sheet)
    for row, (heading, tiles) in enumerate(rows):
        top = row * height
        drawing.text((2, top + 2), _as_ascii(heading), fill="black")
        for column, (tile, text) in enumerate(tiles):
            drawing.text((column * _TILE + 2, top + _CAPTION // 2 + 5), text, fill="black")
            sheet.paste(tile, (column * _TILE, top + above))
    sheet.save(path, "PNG")


def _in_two_lines(id):
    """Return an id in lines as wide as a tile, without its beginning if it is too long."""
    end = _as_ascii(id)[-2 * _CHARACTERS :]
    return f"{end[:_CHARACTERS]}\n{end[_CHARACTERS:]}"


def _as_ascii(text):
    return text.encode("ascii", "replace").decode()


def _read_tiles(source, ids):
    tiles, numbers = {}, sorted(source.find_numbers(ids))
    if not numbers:
        return tiles
    for number, payload, _ in source.some(np.array(numbers, "int64")):
        pixels = source.pixels(decode(source.read(payload))).numpy()
        tiles[source.find_id(int(number))] = Image.fromarray(pixels).resize((_TILE, _TILE))
    return tiles
