"""`keras-vit quickstart`."""

import dataclasses
import datetime
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

PRETRAINING_CLASSES = tuple("0123456")
FINETUNING_CLASSES = tuple("789")
# Over four seeds, 97.2 to 98.1 % of the test images are right, and from scratch 94.4 to 96.3 %:
# as with a fourth block, in less time. With 70 steps of fine-tuning, those of the recipe, and four
# blocks, it was 94.4 to 96.3 % and 86.9 to 96.3 %.
DEPTH = 3
FINETUNING_STEPS = 150
# Validation and saving take longer than one pass over the few images.
PRETRAINING_PASSES, FINETUNING_PASSES = 10, 2


@dataclasses.dataclass
class Quickstart:
    """Train, evaluate and export a model of handwritten digits, in about three minutes.

    Pre-train a small ViT on some digits, fine-tune it at a higher resolution on the others, and
    export it for TF Serving. Example: keras-vit quickstart
    """

    workdir: pathlib.Path | None = None
    """New directory for everything; runs/quickstart-TIME by default."""

    def run(self):
        """Pre-train, fine-tune, compare, draw, export and predict."""
        from keras_vit.inspection.figures.drawing import draw_predictions
        from keras_vit.models import replace_head, resize
        from keras_vit.serving.export import export
        from keras_vit.training.job import train
        from keras_vit.training.recipes import RECIPES

        # Check now what is needed only after minutes of training.
        packages = ("sklearn", "matplotlib")
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            raise ValueError(
                "`keras-vit quickstart` needs scikit-learn and matplotlib: "
                f"pip install 'keras-vit-zoo[demo]'. Received: no {' and no '.join(missing)}"
            )
        time = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
        workdir = self.workdir or pathlib.Path("runs") / f"quickstart-{time}"
        recipe = dataclasses.replace(RECIPES["digits_finetune"], steps=FINETUNING_STEPS)
        size = recipe.image_size

        announce(1, f"Pre-training a small ViT on the digits {', '.join(PRETRAINING_CLASSES)}")
        pretrained = small_vit(RECIPES["digits_pretrain"], PRETRAINING_CLASSES)
        epochs = RECIPES["digits_pretrain"].epochs // PRETRAINING_PASSES
        long_epochs = dataclasses.replace(RECIPES["digits_pretrain"], epochs=epochs)
        options = data_options(PRETRAINING_CLASSES, PRETRAINING_PASSES)
        train(long_epochs, pretrained, "digits", workdir / "pretrained", **options, **one_bar())

        announce(2, f"Fine-tuning it on {', '.join(FINETUNING_CLASSES)}, at {size} pixels a side")
        tuned = resize(replace_head(pretrained, len(FINETUNING_CLASSES)), size)
        options = data_options(FINETUNING_CLASSES, FINETUNING_PASSES)
        train(recipe, tuned, "digits", workdir / "finetuned", **options, **one_bar())

        announce(3, "Training the same model from scratch, with the same budget")
        scratch = small_vit(recipe, FINETUNING_CLASSES)
        train(recipe, scratch, "digits", workdir / "from_scratch", **options, **one_bar())

        announce(4, "Comparing the two on the test split")
        models = {"fine-tuned": tuned, "from scratch": scratch}
        accuracies = {name: accuracy_on_test_split(model, size) for name, model in models.items()}
        for name, accuracy in accuracies.items():
            print(f"test accuracy {name}: {accuracy:.1%}")
        (workdir / "accuracies.json").write_text(json.dumps(accuracies) + "\n")

        announce(5, "Drawing predictions and exporting for TF Serving")
        picture = workdir / "predictions.png"
        images, labels = shuffled_test_images(size)
        draw_predictions(tuned, images, labels, FINETUNING_CLASSES, picture)
        exported = export(tuned, workdir / "serving", class_names=FINETUNING_CLASSES)

        announce(6, "Loading the export in a fresh process and classifying PNG files")
        files = write_images(workdir / "images", images[:4], labels[:4])
        # The command that a user would type.
        command = [sys.executable, "-m", "keras_vit", "predict", exported, *files]
        subprocess.run([str(part) for part in command], check=True)

        print_places(workdir, picture, exported)


def announce(step, what):
    """Print a line before each part of the job."""
    print(f"\n[{step}/6] {what}", flush=True)


def data_options(classes, passes):
    """Return options of `train` for epochs of several passes over the images of some classes."""
    from keras_vit.data.loading import find_source

    images = find_source("digits", "train", classes).num_examples
    return {"classes": classes, "epoch_examples": passes * images}


def one_bar():
    """Return options of `train` that show one bar, instead of two lines for each epoch."""
    from tqdm.keras import TqdmCallback

    bar = TqdmCallback(
        verbose=0,
        desc="training",
        bar_format="{l_bar}{bar:30}| {n_fmt}/{total_fmt} epochs, {elapsed} (left: {remaining})",
        # In a log file, each update is a line.
        mininterval=0.1 if sys.stderr.isatty() else 15,
    )
    return {"callbacks": (bar,), "verbose": 0}


def small_vit(recipe, classes):
    """Make a ViT for images of few pixels."""
    import keras

    from keras_vit.models import vision_transformer

    keras.utils.set_random_seed(recipe.seed)
    return vision_transformer(
        patch_size=4,
        embedding_dim=64,
        depth=DEPTH,
        num_heads=4,
        mlp_dim=128,
        num_classes=len(classes),
        image_size=recipe.image_size,
        representation_size=64 if recipe.pre_logits else None,
        dropout=recipe.dropout,
        name="small_vit",
    )


def accuracy_on_test_split(model, image_size):
    """Return the accuracy on the test split of the fine-tuning classes."""
    from keras_vit.data.loading import load
    from keras_vit.evaluation.classification import evaluate

    test = load("digits", "test", image_size, 64, classes=FINETUNING_CLASSES)
    return evaluate(model, test)["accuracy"]


def shuffled_test_images(image_size, count=24):
    """Return the first images of the shuffled test split, in [-1, 1], and their labels."""
    from keras_vit.data.loading import load

    test = load("digits", "test", image_size, count, training=True, classes=FINETUNING_CLASSES)
    return next(test.as_numpy_iterator())


def write_images(directory, images, labels):
    """Write images as PNG files, and return their paths."""
    import keras

    directory.mkdir()
    paths = []
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        paths.append(directory / f"{index}_is_a_{FINETUNING_CLASSES[label]}.png")
        keras.utils.save_img(paths[-1], (image + 1) * 127.5, scale=False)
    return paths


def print_places(workdir, picture, exported):
    """Print where everything is and what to try next."""
    command = pathlib.Path("keras-vit")
    if shutil.which(command) is None:
        # `make demo` installs it into an environment that is not activated.
        command = pathlib.Path(os.path.relpath(sys.executable)).with_name(command.name)
    print(f"""
Everything is in {workdir}:
  {picture}   the fine-tuned model's predictions for 24 test images
  {workdir / "finetuned"}   its best and last models, settings and curves
  {workdir / "serving" / exported.name}   the SavedModel for TF Serving

Try next:
  {command} evaluate {workdir / "finetuned" / "last.keras"}
  {command.with_name("tensorboard")} --logdir {workdir}
  {command} train finetune --help   (then: --data folder:YOUR_IMAGES)""")
