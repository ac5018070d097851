"""Draw ellipses, rectangles and triangles over parts of photographs, with their masks.

    python benchmarks/shapes.py photos shapes
    keras-vit train segment --data masks:shapes ...

docs/dense.md has the commands and the results of segmenters. The three splits use different
photographs. Ellipses are red, rectangles green, triangles blue; with `--no-own-colors` each shape
has any of these colors, and only its form determines its class.
"""

import concurrent.futures
import functools
import pathlib

import numpy as np
import tqdm
import tyro
from PIL import Image, ImageDraw

SIDE = 224
NAMES = ("background", "ellipse", "rectangle", "triangle")
COLORS = ((200, 40, 40), (40, 170, 60), (50, 70, 210))
# For each split: a range of the photographs in percent, the number of pictures, the first seed.
SPLITS = {
    "train": ((0, 80), 4000, 0),
    "validation": ((80, 90), 100, 100_000),
    "test": ((90, 100), 100, 200_000),
}


def draw(photos, own_colors, seed):
    """Return a picture and its mask."""
    rng = np.random.default_rng(seed)
    image = cut(Image.open(photos[rng.integers(len(photos))]).convert("RGB"), rng)
    mask = Image.new("L", image.size, 0)
    for _ in range(rng.integers(1, 4)):
        kind = int(rng.integers(1, 4))
        color = COLORS[kind - 1 if own_colors else rng.integers(3)]
        color = tuple(int(value) for value in (color + rng.integers(-40, 41, 3)).clip(0, 255))
        width, height = rng.uniform(0.2, 0.5, 2) * SIDE
        left, top = rng.uniform(0, SIDE - width), rng.uniform(0, SIDE - height)
        for canvas, fill in ((image, color), (mask, kind)):
            draw_shape(ImageDraw.Draw(canvas), kind, (left, top, width, height), fill)
    return image, mask


def cut(photo, rng):
    """Return a random square of a photograph, with at least half of its shorter side."""
    side = int(min(photo.size) * rng.uniform(0.5, 1))
    left, top = (int(rng.integers(0, length - side + 1)) for length in photo.size)
    return photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE))


def draw_shape(pen, kind, box, fill):
    """Draw the shape of a class in a box (left, top, width, height)."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    if NAMES[kind] == "triangle":
        pen.polygon([(left, bottom), (right, bottom), (left + width / 2, top)], fill=fill)
    else:
        shape = pen.ellipse if NAMES[kind] == "ellipse" else pen.rectangle
        shape((left, top, right, bottom), fill=fill)


def write(photos, own_colors, folder, seed):
    """Write a picture and its mask; the seed determines both."""
    image, mask = draw(photos, own_colors, seed)
    image.save(folder / "images" / f"{seed:06d}.jpg", quality=90)
    mask.save(folder / "masks" / f"{seed:06d}.png")


def main(
    photos: tyro.conf.Positional[pathlib.Path],
    output: tyro.conf.Positional[pathlib.Path],
    own_colors: bool = True,
):
    """Write 4,200 pictures of shapes over the photographs (JPEG files) of a folder.

    Args:
        photos: folder of at least ten photographs.
        output: folder to write to, for `masks:OUTPUT`.
        own_colors: whether each shape has a color of its own.
    """
    paths = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if len(paths) < 10:
        raise SystemExit(f"`photos` must have at least ten JPEG files. Received: {len(paths)}")
    paths = [paths[index] for index in np.random.default_rng(0).permutation(len(paths))]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for split, (share, count, first) in SPLITS.items():
            part = paths[slice(*(len(paths) * percent // 100 for percent in share))]
            for name in ("images", "masks"):
                (output / split / name).mkdir(parents=True, exist_ok=True)
            job = functools.partial(write, part, own_colors, output / split)
            seeds = range(first, first + count)
            list(tqdm.tqdm(pool.map(job, seeds, chunksize=50), desc=split, total=count))
    (output / "classes.txt").write_text("".join(f"{name}\n" for name in NAMES))


if __name__ == "__main__":
    tyro.cli(main)
