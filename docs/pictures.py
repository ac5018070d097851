"""Draw the pictures of docs/: what models see in photographs of the public domain.

The photographs come with scikit-image: pip install scikit-image
Example: python docs/pictures.py ViT_B16/augreg_imagenet21k vit_b16 --image-size 224
"""

import argparse
import pathlib
import tempfile

import keras
import skimage.data

import keras_vit
from keras_vit.checkpoints.named_models import load_trained
from keras_vit.inspection.report import write_report
from keras_vit.models.image_model import image_spec_of
from keras_vit.serving.image_files import preprocess_files, read_image

PICTURES = pathlib.Path(__file__).parent / "pictures"
# Without a copyright, as skimage/data/README.txt says.
PHOTOGRAPHS = ("chelsea", "rocket", "astronaut", "coffee")


def main():
    """Draw the figures of the model that the command names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "model", help="a run's directory, a .keras file, a checkpoint, or a builder (untrained)"
    )
    parser.add_argument("name", help="name of the new directory in docs/pictures/")
    parser.add_argument("--image-size", type=int, help="resizes a model for another size")
    arguments = parser.parse_args()
    model = open_model(arguments.model, arguments.image_size)
    images = photographs(model.input_shape[1:3], image_spec_of(model))
    # The photographs are of other classes than those of most models.
    model.class_names = None
    page = write_report(model, images, PICTURES / arguments.name)
    page.unlink()
    print(f"The pictures are in {page.parent}")


def open_model(name, image_size=None):
    """Return a trained model, or an untrained one by the name of its builder."""
    if name not in [variant.name for variant in keras_vit.list_variants()]:
        return load_trained(name, image_size)
    keras.utils.set_random_seed(0)
    return getattr(keras_vit, name)(image_size=image_size or 224)


def photographs(image_size, image_spec):
    """Return the middle of each photograph as a model takes it."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [pathlib.Path(directory, f"{name}.png") for name in PHOTOGRAPHS]
        for path in paths:
            keras.utils.save_img(path, middle(getattr(skimage.data, path.stem)()))
        return preprocess_files(map(read_image, paths), image_size, image_spec)


def middle(image):
    """Return the square in the middle of an image."""
    size = min(image.shape[:2])
    top, left = ((side - size) // 2 for side in image.shape[:2])
    return image[top : top + size, left : left + size]


if __name__ == "__main__":
    main()
