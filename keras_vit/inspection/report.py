"""Write all figures of a model, and a page that shows them."""

import base64
import dataclasses
import html
import pathlib

from keras_vit.core.files import replacing
from keras_vit.core.pixels import check_images
from keras_vit.inspection.attention import attention_maps
from keras_vit.inspection.distance import attention_distance
from keras_vit.inspection.embeddings import filter_components, position_similarity
from keras_vit.inspection.figures.attention import draw_attention_distance, draw_heads, draw_rollout
from keras_vit.inspection.figures.drawing import check_matplotlib, is_drawn_here
from keras_vit.inspection.figures.embeddings import draw_filters, draw_position_similarity
from keras_vit.inspection.rollout import attention_rollout
from keras_vit.models.parts import find_blocks, has_class_output, has_positions, token_grid

PAGE = "index.html"
# Identifies the pages of this package, so that no other page is replaced.
TITLE_END = ": what it sees</title>"
# Number of images that are drawn; the attention distance is a mean over all images.
NUM_DRAWN = 8


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Args:
        file: name of the PNG file.
        title: heading.
        caption: description and how to read the figure.
    """

    file: str
    title: str
    caption: str


FILTERS = Figure(
    "filters.png",
    "Filters",
    "The principal components of the model's first filters. In a trained model the first ones are "
    "plain (averages, edges, colors); in an untrained model they are noise.",
)
POSITIONS = Figure(
    "position_similarity.png",
    "Position embeddings",
    "One tile per patch: the similarity of its position embedding to those of all patches. A "
    "trained model has learned which positions are near, and rows and columns.",
)
DISTANCE = Figure(
    "attention_distance.png",
    "Attention distance",
    "The mean distance between a patch and the patches it attends to: one point per head. In the "
    "first blocks of a well-trained model, some heads already attend far away.",
)
ROLLOUT = Figure(
    "rollout.png",
    "Attention rollout",
    "How much each patch contributes to the output by the attention of all blocks: yellow is the "
    "most. In an untrained model all patches contribute about the same. If the model has class "
    "names, the title is the most likely class.",
)
HEADS = Figure(
    "heads.png",
    "Attention by head",
    "How much each head of the class token attends to the patches of the first image. A model "
    "without a class token at its output is shown for the middle patch, marked with a cross.",
)
FIGURES = (FILTERS, POSITIONS, DISTANCE, ROLLOUT, HEADS)


def write_report(model, images, directory, verbose=0):
    """Draw what a model has learned and attends to, and write a page with the figures.

    The directory gets a PNG file per figure and `index.html`, which contains all of them. A ResNet
    has only the figure of the filters.

    Args:
        model: a model of this package, built, fine-tuned or reloaded.
        images: array `(count, height, width, channels)` in [-1, 1], of the model's size.
        directory: path of the directory, which is created if it does not exist. Files with the
            figures' names are replaced, and figures that this model does not have are removed.
        verbose: as in `keras.Model.predict`, for the attention distance.

    Returns:
        The path of the page.

    Raises:
        ValueError: if matplotlib is not installed; `directory` has an `index.html` that this
            package did not write; or `images` is empty, does not have the model's input shape, does
            not have 1 or 3 channels, or is not scaled to [-1, 1].
        OSError: if the directory cannot be written.

    Reference:
        Section 4.5 of the ViT paper (arXiv 2010.11929).
    """
    check_matplotlib()
    _check_images(model, images)
    directory = pathlib.Path(directory).expanduser()
    _check_page(directory / PAGE)
    directory.mkdir(parents=True, exist_ok=True)
    figures = list(_draw_embeddings(model, directory))
    if token_grid(model) is not None:
        figures += _draw_attention(model, images, directory, verbose)
    for figure in FIGURES:
        # Figures of another model are removed; pictures from elsewhere stay.
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
    check_images(images)


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
    rollout, classes = attention_rollout(model, drawn), _predicted_classes(model, drawn)
    draw_rollout(drawn, rollout, directory / ROLLOUT.file, classes)
    maps = {name: scores[0] for name, scores in attention_maps(model, images[:1]).items()}
    rows, columns = token_grid(model)
    num_prefix = next(iter(maps.values())).shape[-1] - rows * columns
    middle = num_prefix + rows // 2 * columns + columns // 2
    query = 0 if has_class_output(model) else middle
    draw_heads(drawn[0], maps, (rows, columns), directory / HEADS.file, query)
    return DISTANCE, ROLLOUT, HEADS


def _predicted_classes(model, images):
    """Return the name of the most likely class of each image, `None` if there are no names."""
    names = getattr(model, "class_names", None)
    if names is None or len(model.output_shape) != 2:
        return None
    return [names[number] for number in model.predict(images, verbose=0).argmax(-1)]


def _page(model, num_images, figures, directory):
    """Return the page as HTML that contains the figures, a single file to send."""
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
