"""Draw the pictures of docs/: what a model sees in photographs of the public domain.

    make real
    .venv/bin/python docs/pictures.py build/real dinov2 --image-size 518

The first command writes a trained model. If its directory has the decoder of
examples/11_saliency.py, overview.png is drawn, too: attention, patch colors and saliency.
"""

import argparse
import pathlib
import runpy

import keras
import numpy as np
import PIL.Image
import PIL.ImageOps
import skimage.data

import keras_vit
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.inspection.analyses import patch_colors
from keras_vit.inspection.figures.drawing import as_picture, draw_tiles, new_figure, save_figure
from keras_vit.inspection.report import write_report
from keras_vit.models.structure import find_blocks, num_prefix_tokens, token_grid

DOCS = pathlib.Path(__file__).parent
PICTURES = DOCS / "pictures"
EXAMPLE = DOCS.parent / "examples" / "11_saliency.py"
# Without a copyright, as the docstrings of skimage.data say.
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
# Width of the pages, in pixels.
WIDTH = 1000
# Larger pictures would make the repository and the pages slow.
MOST_BYTES = 300_000


def main():
    """Draw the figures of the model that the command names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a run's directory, a .keras file, or a checkpoint")
    parser.add_argument("name", help="name of the new directory in docs/pictures/")
    parser.add_argument("--image-size", type=int, help="resizes the model for another size")
    arguments = parser.parse_args()
    model = load_trained(arguments.model, arguments.image_size)
    # The photographs are of other classes than those of most models.
    model.class_names = None
    images = photographs(model.input_shape[1:3])
    folder = PICTURES / arguments.name
    write_report(model, images, folder).unlink()
    if pathlib.Path(arguments.model, "decoder.npz").exists():
        saliency_model = runpy.run_path(str(EXAMPLE))["saliency_model"]
        segmenter = saliency_model(arguments.model, model.input_shape[1])
        saliency = keras.ops.softmax(segmenter.predict(images, batch_size=1))[..., 1]
        draw_overview(model, images, np.asarray(saliency), folder / "overview.png")
    for path in folder.glob("*.png"):
        shrink(path)
    print(f"The pictures are in {folder}")


def photographs(size):
    """Return the middle of each photograph, in [-1, 1]."""
    squares = []
    for name in PHOTOGRAPHS:
        image = PIL.Image.fromarray(getattr(skimage.data, name)())
        squares.append(PIL.ImageOps.fit(image, size[::-1], PIL.Image.Resampling.BICUBIC))
    return keras_vit.preprocess(np.stack(squares))


def draw_overview(model, images, saliency, path):
    """Draw images, the attention of each head of the last block, patch colors and saliency."""
    last = find_blocks(model)[-1].name
    attention = keras_vit.attention_maps(model, images, [last], batch_size=1)[last]
    attention = attention[:, :, 0, num_prefix_tokens(model) :]
    attention = attention.reshape(*attention.shape[:2], *token_grid(model))
    colors, _ = patch_colors(model, images)
    heads = [f"head {number}" for number in range(attention.shape[1])]
    titles = ["", *heads, "patch colors", "saliency"]
    pictures = []
    for image, own_attention, own_colors, own_saliency in zip(
        images, attention, colors, saliency, strict=True
    ):
        pictures += [as_picture(image), *own_attention, own_colors, own_saliency]
    figure = new_figure(1.1 * len(titles), 1.1 * len(images) + 0.2)
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    columns, titles = len(titles), titles + [""] * (len(pictures) - len(titles))
    draw_tiles(figure, columns, pictures, titles, fontsize=8)
    save_figure(figure, path)


def shrink(path):
    """Make a picture as wide as the pages, and store it with 256 colors."""
    image = PIL.Image.open(path).convert("RGB")
    if image.width > WIDTH:
        size = WIDTH, round(WIDTH / image.width * image.height)
        image = image.resize(size, PIL.Image.Resampling.LANCZOS)
    # The second method has coarser colors, which need less space.
    for method in (PIL.Image.Quantize.MEDIANCUT, PIL.Image.Quantize.FASTOCTREE):
        image.quantize(method=method).save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            break


if __name__ == "__main__":
    main()
