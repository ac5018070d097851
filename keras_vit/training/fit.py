"""Training by recipe, through `model.fit`."""

import logging
import math
import pathlib
import re
import shutil

import keras

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint
from keras_vit.data.catalog import changes_that_keep_labels
from keras_vit.data.datasets import load
from keras_vit.data.skipped import explaining_errors
from keras_vit.models import Variant, build, find_variant, replace_head, resize
from keras_vit.models.files import load_model
from keras_vit.models.options import is_resnet
from keras_vit.models.surgery import check_classifier
from keras_vit.training.losses import make_loss
from keras_vit.training.optimizers import LogGradientNorm, make_optimizer
from keras_vit.training.run import LAST_MODEL, SKIPPED_FILE, SaveModels, create_run, find_model


def fit(recipe, model, data, workdir, facts=None):
    """Trains a model by a recipe and keeps the run in a directory.

    The directory gets `run.json` (the resolved recipe and the class names), `tensorboard/` (loss,
    accuracy, learning rate, norm of the gradients), `best.keras` (by validation accuracy),
    `last.keras` and, where images could not be decoded, `skipped.txt`.

    Args:
        recipe: a `Recipe`.
        model: a built model whose head has the dataset's classes. It is compiled and trained.
        data: `(train, validation)`, datasets of `load`, the first with `repeat=True`.
        workdir: path of a new or empty directory.
        facts: dictionary of what else `run.json` shall say.

    Returns:
        The `keras.callbacks.History` of `model.fit`.

    Raises:
        ValueError: if the directory already holds something, the head and the dataset have
            different classes, the model does not return logits, too many images cannot be
            decoded, or the loss is not finite.
    """
    train, validation = data
    num_classes = check_classifier(model)
    if num_classes != len(train.class_names):
        raise ValueError(
            f"`model` must have a head of the dataset's {len(train.class_names)} classes; "
            f"see `keras_vit.replace_head`. Received: a model of {num_classes} outputs"
        )
    epochs, steps_per_epoch = recipe.epoch_lengths(train.num_examples)
    workdir = create_run(workdir, recipe, {"class_names": train.class_names, **(facts or {})})
    model.compile(
        optimizer=make_optimizer(recipe, model, epochs * steps_per_epoch),
        loss=make_loss(recipe, train.element_spec[1]),
        metrics=["accuracy"],
    )
    # Made while TensorFlow traces the first step, its variables would have it traced twice.
    model.optimizer.build(model.trainable_variables)
    callbacks = [
        LogGradientNorm(),
        SaveModels(workdir),
        keras.callbacks.TensorBoard(workdir / "tensorboard", write_graph=False),
        keras.callbacks.TerminateOnNaN(),
    ]
    try:
        with explaining_errors(train, validation):
            history = model.fit(
                train,
                validation_data=validation,
                epochs=epochs,
                steps_per_epoch=steps_per_epoch,
                callbacks=callbacks,
                # The dataset shuffles itself.
                shuffle=False,
            )
        _check_loss(history, recipe)
    except BaseException:
        # What failed before its first model is no run, and shall not be in the way of the next.
        if not (workdir / LAST_MODEL).exists():
            shutil.rmtree(workdir)
        raise
    report_skipped(workdir, train, validation)
    return history


def report_skipped(workdir, *datasets):
    """Says which images were skipped, and writes them with the reasons to `skipped.txt`."""
    lines = []
    for dataset in datasets:
        if len(dataset.skipped):
            logging.getLogger("keras_vit").warning("%s", dataset.skipped)
        lines += [f"{id}\t{reason}\n" for id, reason in dataset.skipped.reasons().items()]
    if lines:
        (pathlib.Path(workdir) / SKIPPED_FILE).write_text("".join(lines), encoding="utf-8")


def _check_loss(history, recipe):
    losses = history.history["loss"]
    if not all(math.isfinite(loss) for loss in losses):
        raise ValueError(
            "The loss must stay finite; try a smaller `learning_rate`. "
            f"Received: learning_rate={recipe.learning_rate}, "
            f"loss {losses[-1]} in epoch {len(losses)}"
        )


def load_training_data(recipe, name, classes=None, cache=None, **options):
    """The train and validation splits of a dataset, as a recipe wants them.

    Where a crop or a flip would change what the label says (a number, a place), it is left out.

    Args:
        recipe: a `Recipe`.
        name: of the dataset, as in `load`.
        classes: as in `load`.
        cache: as in `load`, for the training split.
        **options: as in `load`, for both splits.

    Returns:
        `(train, validation)`; the first has no end.

    Raises:
        ValueError: as `load`.
    """
    shared = {
        "image_size": (recipe.image_size, recipe.image_size),
        "batch_size": recipe.batch_size,
        "classes": classes,
        "one_hot": recipe.wants_shares,
        "seed": recipe.seed,
        **options,
    }
    train = load(
        name,
        "train",
        training=True,
        repeat=True,
        **changes_that_keep_labels(name, recipe.min_crop_area, recipe.flip),
        random_crop_from=recipe.random_crop_from,
        augmentation=recipe.augmentation,
        cache=cache,
        **shared,
    )
    return train, load(name, "validation", **shared)


def make_model(recipe, model, num_classes, dtype=None):
    """The model that a recipe trains: a new one of a variant, or a trained one with a new head.

    Args:
        recipe: a `Recipe`.
        model: name of a variant; path of a `.keras` file or of a run's directory; or a checkpoint
            as in `keras_vit.from_checkpoint`. What is loaded gets a zero head and the recipe's
            image size. A `.keras` file keeps its own dropout.
        num_classes: classes of the head.
        dtype: policy of the model; a `.keras` file has its own.

    Returns:
        A Functional `keras.Model`.

    Raises:
        ValueError: if `model` is none of them, the patches do not tile the recipe's images, or a
            `dtype` is given for a `.keras` file.
    """
    made = _make_model(recipe, model, num_classes, dtype)
    if recipe.head_bias:
        bias = made.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, recipe.head_bias))
    return made


def _make_model(recipe, model, num_classes, dtype):
    keras.utils.set_random_seed(recipe.seed)
    if _is_variant(model):
        return _build_variant(recipe, find_variant(model), num_classes, dtype)
    path = find_model(model)
    if path.suffix != ".keras":
        options = {"image_size": recipe.image_size, "dtype": dtype}
        if recipe.dropout or recipe.pre_logits:
            summary = inspect_checkpoint(model, image_size=recipe.image_size)
            if is_resnet(summary.options):
                _tell_what_is_left_out(recipe)
            else:
                options["dropout"] = recipe.dropout
        return from_checkpoint(model, num_classes=num_classes, **options)
    if dtype is not None:
        raise ValueError(
            "`dtype` is for a model that is not a .keras file, which has its own. "
            f"Received: dtype={dtype!r}, model={str(model)!r}"
        )
    trained = replace_head(load_model(path), num_classes)
    size = (recipe.image_size, recipe.image_size)
    return trained if trained.input_shape[1:3] == size else resize(trained, size)


def _build_variant(recipe, variant, num_classes, dtype):
    options = {"num_classes": num_classes, "image_size": recipe.image_size, "dtype": dtype}
    # Table 3 of the paper: its ResNets have neither dropout nor a hidden layer in the head.
    if not isinstance(variant, Variant):
        _tell_what_is_left_out(recipe)
    else:
        options["dropout"] = recipe.dropout
        options["representation_size"] = variant.embedding_dim if recipe.pre_logits else None
    return build(variant.name, **options)


def _tell_what_is_left_out(recipe):
    if recipe.dropout or recipe.pre_logits:
        logging.getLogger("keras_vit").info(
            "a ResNet has no dropout and no `pre_logits`: the recipe's are left out"
        )


def _is_variant(model):
    """Whether a model is meant by its variant's name and not by a file, an address or weights."""
    return re.fullmatch(r"\w+", str(model)) and not pathlib.Path(model).exists()
