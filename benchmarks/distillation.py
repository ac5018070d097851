"""Measure whether distillation helps: ViT-Ti on digits and CIFAR-10, with and without a teacher.

The teacher is a small ResNet, trained on all training images. The student has the width, heads and
depth of ViT-Ti, and is trained on few of these images. With and without the teacher, it has the
same initial weights, images, crops and number of steps. The temperature is the best on the
validation images with the first seed. The script prints the test accuracies as a Markdown table.
All runs are kept in `workdir`, and the same command resumes them.

CIFAR-10 is a folder of images, `train/CLASS/*.jpg` and `test/CLASS/*.jpg`.
"""

import dataclasses
import pathlib
import statistics

import keras
import tyro

from keras_vit import resnet, vision_transformer
from keras_vit.cli.command import markdown_table
from keras_vit.data import load
from keras_vit.evaluation.classification import evaluate
from keras_vit.models.keras_files import load_model
from keras_vit.training import Recipe, train

TEACHER = Recipe(
    image_size=16,
    batch_size=64,
    optimizer="adamw",
    learning_rate=1e-3,
    decay="cosine",
    warmup_steps=20,
    steps=300,
    weight_decay=0.05,
    clip_norm=1.0,
    min_crop_area=0.5,
    flip="never",
)
STUDENT = dataclasses.replace(
    TEACHER, batch_size=32, learning_rate=3e-4, steps=600, augmentation="mixup"
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A dataset, the two recipes, and the share of the training images that the student sees."""

    data: str
    teacher: Recipe
    student: Recipe
    fraction: float


def settings(cifar):
    """Return a dictionary of the settings; `cifar` is the folder of CIFAR-10, or `None`."""
    found = {"digits": Setting("digits", TEACHER, STUDENT, 0.05)}
    if cifar is not None:
        photos = {"image_size": 32, "flip": "random"}
        teacher = dataclasses.replace(TEACHER, **photos, steps=1500)
        student = dataclasses.replace(STUDENT, **photos, steps=300, augmentation="none")
        found["CIFAR-10"] = Setting(f"folder:{cifar.resolve()}", teacher, student, 0.03)
    return found


def train_teacher(setting, workdir):
    """Train the teacher, unless it is trained already; return its path."""
    keras.utils.set_random_seed(0)
    size = setting.teacher.image_size
    model = resnet((1, 1, 1), width=64, num_classes=10, image_size=size, name="teacher")
    train(setting.teacher, model, setting.data, workdir, validation=None, resume=True)
    return workdir


def train_student(setting, workdir, seed, teacher=None, temperature=1.0):
    """Train a student with the labels, or with a teacher only; return the path of its model."""
    recipe = dataclasses.replace(setting.student, seed=seed)
    if teacher is not None:
        # Function matching (arXiv 2106.05237): the labels are not used.
        recipe = dataclasses.replace(recipe, temperature=temperature, label_weight=0.0)
    keras.utils.set_random_seed(seed)
    model = vision_transformer(
        patch_size=8,
        embedding_dim=192,
        depth=12,
        num_heads=3,
        mlp_dim=768,
        num_classes=10,
        image_size=recipe.image_size,
        name="student",
    )
    options = {"fraction": setting.fraction, "validation": None, "resume": True}
    train(recipe, model, setting.data, workdir, teacher=teacher, **options)
    return workdir / "last.keras"


def accuracy(setting, path, split="test"):
    """Return the accuracy of a model on the images of a split."""
    model = load_model(path)
    return evaluate(model, load(setting.data, split, model.input_shape[1:3], 64))["accuracy"]


def measure(name, setting, workdir, seeds, temperatures):
    """Return the rows of a table: the teacher, and the students with and without the teacher."""
    teacher = train_teacher(setting, workdir / "teacher")

    def distilled(seed, temperature):
        path = workdir / f"temperature_{temperature:g}_{seed}"
        return train_student(setting, path, seed, teacher, temperature)

    found = {t: accuracy(setting, distilled(0, t), "validation") for t in temperatures}
    best = max(found, key=found.get)
    print(name, "validation accuracies by temperature", found, flush=True)
    learns_from = {
        "labels": lambda seed: train_student(setting, workdir / f"labels_{seed}", seed),
        f"teacher, temperature {best:g}": lambda seed: distilled(seed, best),
    }
    rows = [
        (name, "(the teacher)", *[""] * seeds, f"{accuracy(setting, teacher / 'last.keras'):.1%}")
    ]
    for what, student in learns_from.items():
        values = [accuracy(setting, student(seed)) for seed in range(seeds)]
        print(name, what, values, flush=True)
        rows.append((name, what, *(f"{v:.1%}" for v in [*values, statistics.mean(values)])))
    return rows


def main(
    workdir: pathlib.Path,
    cifar: pathlib.Path | None = None,
    seeds: int = 3,
    temperatures: tuple[float, ...] = (1.0, 4.0),
):
    """Train the students, with several seeds."""
    rows = []
    for name, setting in settings(cifar).items():
        rows += measure(name, setting, workdir / name, seeds, temperatures)
    columns = ("images", "learns from", *(f"seed {seed}" for seed in range(seeds)), "mean")
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    tyro.cli(main)
