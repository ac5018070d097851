"""All figures of a model in a directory, with a page that shows them."""

import base64
import dataclasses
import html
import pathlib

from keras_vit.core.files import replacing
from keras_vit.core.pixels import check_pixels, warned_of_range
from keras_vit.inspection.attention import attention_maps
from keras_vit.inspection.distance import attention_distance
from keras_vit.inspection.embeddings import filter_components, position_similarity
from keras_vit.inspection.figures.attention import (
    draw_attention_distance,
    draw_heads,
    draw_rollout,
)
from keras_vit.inspection.figures.drawing import check_matplotlib, is_drawn_here
from keras_vit.inspection.figures.embeddings import draw_filters, draw_position_similarity
from keras_vit.inspection.rollout import attention_rollout
from keras_vit.models.parts import find_blocks, has_class_output, has_positions
from keras_vit.models.prediction import check_shape
from keras_vit.models.surgery import token_grid

PAGE = "index.html"
# By which a page of this package is known.
TITLE_END = ": what it sees</title>"
# Images that are drawn; the distance is a mean over all.
NUM_DRAWN = 8


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Args:
        file: name of the PNG file.
        title: its heading.
        caption: what it shows and how to read it.
    """

    file: str
    title: str
    caption: str


FILTERS = Figure(
    "filters.png",
    "Filters",
    "The principal components of the filters that the model sees an image through. Of a trained "
    "model the first are plain: averages, edges, colours; of an untrained one they are noise.",
)
POSITIONS = Figure(
    "position_similarity.png",
    "Position embeddings",
    "A tile for each patch: how similar its position embedding is to that of every patch. A "
    "trained model has learned which positions are near, and rows and columns.",
)
DISTANCE = Figure(
    "attention_distance.png",
    "Attention distance",
    "How far each head looks, as the size of a receptive field: a point for each head. In the "
    "first blocks of a well trained model some look far already.",
)
ROLLOUT = Figure(
    "rollout.png",
    "Attention rollout",
    "From which patches the output comes, by the attention of all blocks together: yellow where "
    "most of it does. Of an untrained model it is all patches alike.",
)
HEADS = Figure(
    "heads.png",
    "Attention by head",
    "What the class token (or, where a model has none at its output, the patch in the middle, "
    "with a cross) takes from the patches of the first image, head by head.",
)
FIGURES = (FILTERS, POSITIONS, DISTANCE, ROLLOUT, HEADS)


def write_report(model, images, directory, verbose=0):
    """Draws what a model has learned and what it sees in images, on a page of its own.

    The directory gets a PNG file for each figure and `index.html`, which holds them all. Of a
    ResNet there are only the filters.

    Args:
        model: a model of this package, built, tuned or reloaded.
        images: array `(count, height, width, channels)` in [-1, 1], of the model's size.
        directory: path; made where it is not there. Files of these names are replaced; figures
            of another model that this one does not have are removed.
        verbose: as in `keras.Model.predict`, where all images are gone through.

    Returns:
        The path of the page.

    Raises:
        ValueError: if matplotlib is not installed, `directory` has an `index.html` of others, or
            `images` is empty, does not have the model's input shape, has other than 1 or 3
            channels, or is not scaled to [-1, 1].
        OSError: if the directory cannot be written to.

    Reference:
        Section 4.5 of the ViT paper (arXiv 2010.11929).
    """
    check_matplotlib()
    _check_images(model, images)
    directory = pathlib.Path(directory).expanduser()
    _check_page(directory / PAGE)
    directory.mkdir(parents=True, exist_ok=True)
    figures = [*_draw_embeddings(model, directory)]
    if token_grid(model) is not None:
        with warned_of_range():
            figures += _draw_attention(model, images, directory, verbose)
    for figure in FIGURES:
        # Remove figures of another model, and no other pictures.
        if figure not in figures and is_drawn_here(directory / figure.file):
            (directory / figure.file).unlink()
    page = directory / PAGE
    with replacing(page) as partial:
        partial.write_text(_page(model, len(images), figures, directory), encoding="utf-8")
    return page


def _check_page(path):
    """Raise `ValueError` if the page would replace one that is not of this package."""
    if path.is_file() and TITLE_END not in path.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(
            f"`directory` must not hold another {PAGE}, which would be replaced. "
            f"Received: {str(path.absolute())!r}"
        )


def _check_images(model, images):
    expected = tuple(model.inputs[0].shape[1:])
    if expected[-1] not in (1, 3):
        raise ValueError(
            "`model` must take images of 1 or 3 channels, which can be drawn. "
            f"Received: a model of images {expected}"
        )
    check_shape(model, images)
    check_pixels(images, model=model)


def _draw_embeddings(model, directory):
    draw_filters(*filter_components(model), directory / FILTERS.file)
    yield FILTERS
    if has_positions(model):
        draw_position_similarity(position_similarity(model), directory / POSITIONS.file)
        yield POSITIONS


def _draw_attention(model, images, directory, verbose):
    distances = attention_distance(model, images, verbose=verbose)
    draw_attention_distance(distances, directory / DISTANCE.file)
    drawn = images[:NUM_DRAWN]
    draw_rollout(drawn, attention_rollout(model, drawn), directory / ROLLOUT.file)
    maps = {name: scores[0] for name, scores in attention_maps(model, images[:1]).items()}
    rows, columns = token_grid(model)
    num_prefix = next(iter(maps.values())).shape[-1] - rows * columns
    middle = num_prefix + rows // 2 * columns + columns // 2
    query = 0 if has_class_output(model) else middle
    draw_heads(drawn[0], maps, (rows, columns), directory / HEADS.file, query)
    return DISTANCE, ROLLOUT, HEADS


def _page(model, num_images, figures, directory):
    """The page, with the figures in it: one file that can be sent."""
    height, width = model.inputs[0].shape[1:3]
    facts = f"{model.count_params():,} parameters, images of {height} x {width} pixels"
    if token_grid(model) is not None:
        facts += f", {len(find_blocks(model))} blocks; attention distance over {num_images} images"
    sections = "\n".join(_section(figure, directory) for figure in figures)
    name = html.escape(model.name)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}{TITLE_END}
<link rel="icon" href="data:,">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem }}
img {{ max-width: 100%; height: auto }}
figure {{ margin: 0 0 2.5rem }}
figcaption {{ color: #444; max-width: 45rem }}
</style>
</head>
<body>
<h1>{name}</h1>
<p>{facts}</p>
{sections}
</body>
</html>
"""


def _section(figure, directory):
    data = base64.b64encode((directory / figure.file).read_bytes()).decode("ascii")
    return f"""<h2>{figure.title}</h2>
<figure>
<img src="data:image/png;base64,{data}" alt="{figure.title}">
<figcaption>{figure.caption}</figcaption>
</figure>"""
