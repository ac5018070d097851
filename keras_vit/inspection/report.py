"""Draw all figures of a model, and write a page with them."""

import base64
import html
import pathlib
import string

from keras_vit.core.files import write_text
from keras_vit.inspection.analyses import (
    attention_distance,
    attention_maps,
    attention_rollout,
    filter_components,
    find_outliers,
    patch_colors,
    position_similarity,
    token_norms,
)
from keras_vit.inspection.figures.model_figures import (
    draw_attention_distance,
    draw_filters,
    draw_heads,
    draw_patch_colors,
    draw_position_similarity,
    draw_rollout,
    draw_token_norms,
)
from keras_vit.models.image_model import check_images
from keras_vit.models.structure import (
    find_blocks,
    has_class_output,
    has_positions,
    num_prefix_tokens,
    token_grid,
)

PAGE = "index.html"
# Identifies pages of this package, so that no other page is replaced.
TITLE_END = ": what it sees</title>"
# Number of images to draw; the attention distance is a mean over all images.
NUM_DRAWN = 8
# The heading and the caption of each figure, by file name.
FIGURES = {
    "filters.png": (
        "Filters",
        "The principal components of the model's first filters. In a trained model the first ones "
        "are plain (averages, edges, colors); in an untrained model they are noise.",
    ),
    "position_similarity.png": (
        "Position embeddings",
        "One tile per patch: the similarity of its position embedding to those of all patches. In "
        "a trained model, near patches and patches of the same row or column are similar.",
    ),
    "attention_distance.png": (
        "Attention distance",
        "The mean distance between a patch and the patches it attends to: one point per head. In "
        "the first blocks of a well-trained model, some heads already attend far away.",
    ),
    "rollout.png": (
        "Attention rollout",
        "How much each patch contributes to the output through the attention of all blocks: yellow "
        "is the most. In an untrained model all patches contribute about the same. If the model "
        "has class names, the title of an image is the most likely class.",
    ),
    "patch_colors.png": (
        "Patch colors",
        "The first three principal components of the foreground's last tokens, as "
        "red, green and blue. In a well-trained model, similar parts of all images have similar "
        "colors. The first component of all tokens divides foreground and background (black).",
    ),
    "token_norms.png": (
        "Token norms",
        "The norms of the tokens after each block. A patch with more than twice the median norm of "
        "its image and block is an outlier. Large models without registers store global "
        "information in such patches (arXiv 2309.16588). Squares mark outliers of any block.",
    ),
    "heads.png": (
        "Attention by head",
        "The attention of the class token to the patches of the first image, in each head. If the "
        "model's output is not the class token, a cross marks the patch whose attention is shown.",
    ),
}


def write_report(model, images, directory, verbose=0):
    """Draw what a model has learned and attends to, and write a page with the figures.

    The figures are PNG files, and the page `index.html` contains all of them. For a ResNet, only
    the filters are drawn.

    Args:
        model: a model of this package.
        images: array `(count, height, width, channels)` in [-1, 1], of the model's size.
        directory: path of the directory, which is created if it does not exist. An earlier report
            is replaced.
        verbose: as in `keras.Model.predict`, for the analyses of all images.

    Returns:
        The path of the page.

    Raises:
        ValueError: if matplotlib is not installed; `directory` has an `index.html` that this
            package did not write; or `images` is empty, does not have the model's input shape, or
            is not scaled to [-1, 1].
        OSError: if the directory cannot be written.

    Reference:
        Section 4.5 of the ViT paper (arXiv 2010.11929).
    """
    check_images(images)
    directory = pathlib.Path(directory).expanduser()
    page = directory / PAGE
    is_ours = page.is_file() and TITLE_END in page.read_text(encoding="utf-8", errors="replace")
    if page.exists() and not is_ours:
        raise ValueError(
            f"`directory` must not contain an {PAGE} that is not a report: it would be replaced. "
            f"Received: {str(page.absolute())!r}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    drawn = ["filters.png"]
    draw_filters(*filter_components(model), directory / "filters.png")
    if has_positions(model):
        drawn.append("position_similarity.png")
        draw_position_similarity(position_similarity(model), directory / drawn[-1])
    height, width = model.inputs[0].shape[1:3]
    text = f"{model.count_params():,} parameters, images of {height} x {width} pixels"
    if token_grid(model) is not None:
        drawn += _draw_attention(model, images, directory, verbose)
        text += f", {len(find_blocks(model))} blocks; attention distance over {len(images)} images"
    # Delete figures that only an earlier report has: they show another model.
    for name in FIGURES.keys() - {*drawn} if is_ours else ():
        (directory / name).unlink(missing_ok=True)
    sections = "\n".join(_section(directory / name) for name in drawn)
    template = string.Template(pathlib.Path(__file__).with_suffix(".html").read_text("utf-8"))
    texts = {"name": html.escape(model.name), "summary": text, "sections": sections}
    write_text(page, template.substitute(texts))
    return page


def _draw_attention(model, images, directory, verbose):
    distances = attention_distance(model, images, verbose=verbose)
    draw_attention_distance(distances, directory / "attention_distance.png")
    drawn, names = images[:NUM_DRAWN], getattr(model, "class_names", None)
    titles = None
    if names is not None and len(model.output_shape) == 2:
        titles = [names[number] for number in model.predict(drawn, verbose=0).argmax(-1)]
    draw_rollout(drawn, attention_rollout(model, drawn), directory / "rollout.png", titles)
    colors, _ = patch_colors(model, drawn)
    draw_patch_colors(drawn, colors, directory / "patch_colors.png")
    norms, grid = token_norms(model, images, verbose=verbose), token_grid(model)
    outliers = find_outliers(model, norms)
    draw_token_norms(images, norms, outliers, grid, directory / "token_norms.png")
    maps = {name: scores[0] for name, scores in attention_maps(model, images[:1]).items()}
    middle = num_prefix_tokens(model) + grid[0] // 2 * grid[1] + grid[1] // 2
    query = 0 if has_class_output(model) else middle
    draw_heads(drawn[0], maps, grid, directory / "heads.png", query)
    return [name for name in FIGURES if name not in ("filters.png", "position_similarity.png")]


def _section(path):
    """Return a figure as HTML with the image embedded, so that the page is a single file."""
    title, caption = FIGURES[path.name]
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"""<h2>{title}</h2>
<figure>
<img src="data:image/png;base64,{data}" alt="{title}">
<figcaption>{caption}</figcaption>
</figure>"""
