"""Recipes, schedules, optimizers and runs."""

import dataclasses
import json
import math
import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.data.images.augmentations import Augmentation
from keras_vit.data.sources.paper import check_augmentation
from keras_vit.experiments.sweep import choose_learning_rate
from keras_vit.models import vision_transformer
from keras_vit.models.files import load_model
from keras_vit.training.callbacks import NotFiniteError, SaveModels
from keras_vit.training.fit import fit
from keras_vit.training.optimizers import SGD, AdamW, make_optimizer
from keras_vit.training.recipes import (
    DIGITS_FINETUNE,
    DIGITS_PRETRAIN,
    FINETUNE,
    PRETRAIN,
    RECIPES,
)
from keras_vit.training.runs.run import find_model, read_run
from keras_vit.training.runs.saved_models import save_model
from keras_vit.training.runs.state import States
from keras_vit.training.starting_model import make_model
from keras_vit.training.training_data import load_training_data
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.reference import case_path
from tests.fixtures.small_runs import CLASSES, small_model, small_recipe
from tests.fixtures.tiny import TINY, images


def test_weight_decay_is_of_kernels_alone():
    model = small_model(DIGITS_PRETRAIN)
    model.get_layer("head").kernel.assign(images(8, 3))
    recipe = dataclasses.replace(DIGITS_PRETRAIN, weight_decay=0.5, learning_rate=0.1)
    optimizer = make_optimizer(dataclasses.replace(recipe, warmup_steps=0), model, 100)
    before = {v.path: to_numpy(v.value) for v in model.trainable_variables}
    # Without gradients the decay is all that moves a variable.
    zeros = [keras.ops.zeros(v.shape) for v in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    for variable in model.trainable_variables:
        expected = before[variable.path]
        if variable.path.endswith("kernel"):
            expected = expected * (1 - 0.1 * 0.5)
        np.testing.assert_allclose(to_numpy(variable.value), expected, rtol=1e-6, atol=1e-9)


def test_optimizers_of_the_paper():
    model = small_model(FINETUNE)
    sgd = make_optimizer(FINETUNE, model, 20_000)
    assert isinstance(sgd, SGD)
    assert (sgd.momentum, sgd.clip_norm, sgd.kernel_decay) == (0.9, 1.0, 0.0)
    adam = make_optimizer(PRETRAIN, model, 20_000)
    assert isinstance(adam, AdamW)
    assert (adam.beta_1, adam.beta_2, adam.epsilon) == (0.9, 0.999, 1e-8)
    assert (adam.kernel_decay, adam.clip_norm) == (0.03, None)


def test_float16_gets_loss_scaling(tmp_path):
    recipe = small_recipe()
    options = {**TINY, "image_size": 8, "dtype": "mixed_float16"}
    optimizer = make_optimizer(recipe, vision_transformer(**options), 100)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    model = vision_transformer(**options)
    data = load_training_data(recipe, "digits", CLASSES)
    history = fit(recipe, model, data, tmp_path / "run")
    assert all(np.isfinite(metrics["loss"]) for metrics in history)
    assert 0 < history[-1]["gradient_norm"] < 100
    assert np.abs(to_numpy(model.get_layer("head").kernel.value)).max() > 0


# Softmax and sigmoid under AdamW. The paper's SGD and masked patches are trained by tests below,
# and what else recipes differ in has tests of its own.
QUICK = ("pretrain", "augreg_imagenet21k")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.large) for name in RECIPES],
)
def test_smoke_recipe_trains(name, tmp_path):
    recipe = RECIPES[name].smoke()
    data = load_training_data(recipe, "digits", CLASSES)
    history = fit(recipe, small_model(recipe), data, tmp_path / "run")
    assert all(np.isfinite(metrics["loss"]) for metrics in history)


@pytest.mark.parametrize("recipe", [PRETRAIN, FINETUNE])
def test_a_variant_is_built_as_the_recipe_wants_it(recipe):
    recipe = dataclasses.replace(recipe.smoke(), remat=True)
    model = make_model(recipe, "ViT_Ti16", num_classes=3, dtype="mixed_bfloat16")
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    names = [layer.name for layer in model.layers]
    assert ("pre_logits" in names) == recipe.pre_logits
    assert model.get_layer("block_0").dropout == recipe.dropout
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("block_0").remat


@pytest.mark.parametrize("recipe", [PRETRAIN, FINETUNE])
def test_a_resnet_has_neither_dropout_nor_a_hidden_layer(recipe):
    model = make_model(recipe.smoke(), "BiT_R50x1", num_classes=3, dtype="mixed_bfloat16")
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))
    assert "pre_logits" not in [layer.name for layer in model.layers]
    assert model.get_layer("stage_1_unit_1").compute_dtype == "bfloat16"


@pytest.mark.parametrize("model", ["ViT_Ti16", case_path("a_vit_token")])
def test_a_new_head_gets_the_recipes_bias(model):
    recipe = RECIPES["augreg_imagenet21k"].smoke()
    bias = make_model(recipe, model, num_classes=3).get_layer("head").bias
    np.testing.assert_array_equal(to_numpy(bias.value), [-10] * 3)


def test_a_checkpoint_of_a_resnet_is_fine_tuned():
    path = case_path("k1_bit_resnetv2")
    for recipe in (FINETUNE.smoke(), PRETRAIN.smoke()):
        model = make_model(recipe, path, num_classes=3)
        assert (model.input_shape, model.output_shape) == ((None, 32, 32, 3), (None, 3))


def test_epochs_of_a_recipe():
    assert dataclasses.replace(DIGITS_PRETRAIN, epochs=3).epoch_lengths(1000) == (3, 32)
    assert FINETUNE.epoch_lengths(1_281_167) == (5, 4000)
    for steps, num_examples, expected in [
        (100, 372, (5, 20)),
        (100, 10_000, (1, 100)),
        (2500, 40, (25, 100)),
        (101, 372, (1, 101)),
        (20, 1, (10, 2)),
    ]:
        recipe = dataclasses.replace(DIGITS_FINETUNE, steps=steps)
        assert recipe.epoch_lengths(num_examples) == expected


def test_run_directory(tmp_path, monkeypatch):
    recipe = small_recipe()
    data = load_training_data(recipe, "digits", CLASSES)
    model = small_model(recipe)
    # A name of one part, as many give it.
    monkeypatch.chdir(tmp_path)
    run = pathlib.Path("digits")
    history = fit(recipe, model, data, run, {"data": "digits"})
    assert sorted(path.name for path in run.iterdir()) == [
        "best.keras",
        "last.keras",
        "metrics.jsonl",
        "run.json",
        "states",
        "tensorboard",
        "trained_on.jsonl",
        "validated_on.jsonl",
    ]
    facts = json.loads((run / "run.json").read_text())
    assert facts["recipe"] == json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert facts["class_names"] == list(CLASSES)
    assert read_run(find_model(run)) == facts
    assert find_model(run) == run / "best.keras"
    last = load_model(run / "last.keras")
    for saved, trained in zip(last.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(saved.value), to_numpy(trained.value))
    assert [metrics["epoch"] for metrics in history] == [0, 1]
    assert all(0 < metrics["gradient_norm"] < np.inf for metrics in history)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history
    assert list((run / "tensorboard").rglob("events.out.tfevents.*"))
    assert make_model(recipe, "digits", num_classes=5).output_shape == (None, 5)


def test_best_model_is_of_the_best_validation_accuracy(tmp_path):
    model = small_model(small_recipe())
    model.compile(make_optimizer(small_recipe(), model, 10))
    callback = SaveModels(tmp_path, [], model)
    callback.set_model(model)
    scores = [(0.5, 1.0), (0.9, 0.8), (0.9, 0.6), (0.9, 0.7), (0.7, 0.1), (0.9, float("nan"))]
    for epoch, (accuracy, loss) in enumerate(scores):
        model.get_layer("head").bias.assign([epoch] * 3)
        callback.on_epoch_end(epoch, {"val_accuracy": accuracy, "val_loss": loss})
    assert to_numpy(load_model(tmp_path / "best.keras").get_layer("head").bias.value)[0] == 2
    assert to_numpy(load_model(tmp_path / "last.keras").get_layer("head").bias.value)[0] == 4


def test_a_failed_save_leaves_the_old_model(tmp_path, monkeypatch):
    model = small_model(small_recipe())
    path = tmp_path / "model.keras"
    save_model(model, path)
    before = path.read_bytes()

    def fail(model, target):
        target.write_bytes(b"half a model")
        raise OSError("No space left on device")

    monkeypatch.setattr(keras.Model, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        save_model(model, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_trained_model_gets_the_recipes_head_and_size(tmp_path):
    recipe = small_recipe()
    trained = vision_transformer(**TINY, representation_size=6)
    trained.save(tmp_path / "trained.keras")
    model = make_model(recipe, tmp_path / "trained.keras", num_classes=5)
    assert (model.input_shape, model.output_shape) == ((None, 8, 8, 3), (None, 5))
    for path in ("block_0/mlp/dense_0/kernel", "encoder_norm/gamma"):
        old, new = (next(v for v in m.weights if v.path == path) for m in (trained, model))
        np.testing.assert_array_equal(to_numpy(old.value), to_numpy(new.value))


def test_a_head_with_an_activation_is_not_trained_on_logits(tmp_path):
    recipe = small_recipe()
    data = load_training_data(recipe, "digits", CLASSES)
    model = vision_transformer(**{**TINY, "image_size": 8}, classifier_activation="softmax")
    with pytest.raises(ValueError, match="`model` must return logits.*'softmax'"):
        fit(recipe, model, data, tmp_path / "run")


def test_workdir_is_never_overwritten(tmp_path):
    recipe = small_recipe()
    data = load_training_data(recipe, "digits", CLASSES)
    (tmp_path / "notes.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(ValueError, match="`workdir` must be a new or empty directory"):
            fit(recipe, small_model(recipe), data, taken)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_too_many_undecodable_images_stop_a_run(tmp_path):
    photos = write_folder(tmp_path / "photos", count=20)
    for path in photos.rglob("*.jpg"):
        path.write_bytes(b"")
    recipe = small_recipe()
    data = load_training_data(recipe, f"folder:{photos}")
    with pytest.raises(ValueError, match="At most a share of 0.1 of the images may be skipped"):
        fit(recipe, small_model(recipe, num_classes=2), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_crops_and_flips_are_left_out_where_they_change_the_label(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "keras_vit.training.training_data.load", lambda *a, **options: asked.append(options)
    )
    recipe = small_recipe(min_crop_area=0.05, flip="random")
    load_training_data(recipe, "vtab/clevr_count")
    assert asked[0]["min_crop_area"] is None
    assert asked[0]["flip"] is False
    load_training_data(recipe, "cifar10")
    assert (asked[2]["min_crop_area"], asked[2]["flip"]) == (0.05, True)


@pytest.mark.parametrize("name", ["vtab/dsprites_location", "cifar10"])
def test_a_crop_of_bit_is_left_out_where_it_changes_the_label(name, monkeypatch, caplog):
    caplog.set_level("INFO")
    asked = []
    monkeypatch.setattr(
        "keras_vit.training.training_data.load", lambda *a, **options: asked.append(options)
    )
    recipe = small_recipe(random_crop_from=10, flip="always", augmentation="bit")
    load_training_data(recipe, name)
    left_out = name.startswith("vtab")
    assert asked[0]["random_crop_from"] == (None if left_out else 10)
    line = f"{name}: left out, as it would change labels: random_crop_from=10, flip='always'"
    assert caplog.messages == ([line] if left_out else [])


@pytest.mark.parametrize(
    "augmentation", ["light1", Augmentation(erasing=0.1), Augmentation(cutmix=0.1)]
)
def test_an_augmentation_that_changes_labels_is_refused(augmentation):
    message = "`augmentation` must be one of none, light0, bit for vtab/dsprites_orientation"
    with pytest.raises(ValueError, match=message):
        check_augmentation("vtab/dsprites_orientation", augmentation)
    # A digit keeps its number where it is sheared, and not where it is flipped.
    check_augmentation("vtab/svhn", augmentation)
    check_augmentation("digits", augmentation)


def test_training_data_with_an_augmentation_that_changes_labels():
    with pytest.raises(ValueError, match="for vtab/clevr_count, whose labels depend on places"):
        load_training_data(small_recipe(augmentation="light2"), "vtab/clevr_count")


def test_a_loss_that_is_not_finite(tmp_path):
    recipe = small_recipe(learning_rate=1e30, clip_norm=None)
    data = load_training_data(recipe, "digits", CLASSES)
    message = (
        r"Loss and gradients must stay finite.*learning_rate=1e[+]30, .* (inf|nan) in step \d+; "
        r"the state before is '.*states.batch-0"
    )
    with pytest.raises(ValueError, match=message):
        fit(recipe, small_model(recipe), data, tmp_path / "run", save_steps=1)
    for array in States(tmp_path / "run" / "states", keep=2).load()[0]:
        assert np.isfinite(array).all()


def test_a_run_that_ends_without_a_model(tmp_path, caplog):
    """Its loss is finite until the last update."""
    recipe = small_recipe(learning_rate=1e38, clip_norm=None, steps=1, warmup_steps=0)
    data = load_training_data(recipe, "digits", CLASSES)
    message = "must end with finite weights and a model.*validation loss of .* after epoch 1"
    with pytest.raises(NotFiniteError, match=message):
        fit(recipe, small_model(recipe), data, tmp_path / "run")
    assert "no model is saved after epoch 1" in caplog.text
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["val_loss"] is None


def test_weights_that_are_not_finite_are_not_saved(tmp_path, caplog):
    model = small_model(small_recipe())
    model.compile(make_optimizer(small_recipe(), model, 10))
    callback = SaveModels(tmp_path, [], model)
    callback.set_model(model)
    callback.on_epoch_end(0, {"loss": 1.0})
    callback.on_train_end()
    saved = (tmp_path / "last.keras").read_bytes()
    model.get_layer("head").bias.assign([0, 0, np.inf])
    callback.on_epoch_end(1, {"loss": 1.0})
    assert "no model is saved after epoch 2: weights that are not finite" in caplog.text
    assert (tmp_path / "last.keras").read_bytes() == saved
    with pytest.raises(NotFiniteError, match="weights that are not finite after epoch 2"):
        callback.on_train_end()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 10.5}, "`steps` must be a whole number.*steps=10.5"),
        ({"warmup_steps": 2.5}, "`warmup_steps` must be a whole number"),
        ({"batch_size": True}, "`batch_size` must be a whole number.*batch_size=True"),
        ({"decay": "staircase", "boundaries": (math.nan,)}, "`boundaries` must be whole numbers"),
        ({"random_crop_from": -3}, "`random_crop_from` must be at least the `image_size`, 24"),
        ({"random_crop_from": 23}, "`random_crop_from` must be at least the `image_size`, 24"),
        ({"epochs": 2}, "Exactly one of `epochs` and `steps`.*epochs=2"),
        ({"steps": None}, "Exactly one of `epochs` and `steps`"),
        ({"steps": 0}, "`steps` must be positive.*steps=0"),
        ({"batch_size": -1}, "`batch_size` must be positive.*batch_size=-1"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive.*=nan"),
        ({"seed": 2**32}, "`seed` must be less than"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive.*learning_rate=0"),
        ({"warmup_steps": -1}, "`warmup_steps` must not be negative.*warmup_steps=-1"),
        ({"optimizer": "adam"}, "`optimizer` must be one of .*optimizer='adam'"),
        ({"decay": "stair"}, "`decay` must be one of .*decay='stair'"),
        ({"dropout": 1.0}, "`dropout` must be .*dropout=1.0"),
        ({"min_crop_area": 1.5}, "`min_crop_area` must be .*min_crop_area=1.5"),
        ({"weight_decay": -0.1}, "`weight_decay` must not be negative.*weight_decay=-0.1"),
    ],
)
def test_wrong_recipe(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(DIGITS_FINETUNE, **changes)


def test_warmup_longer_than_the_run():
    recipe = dataclasses.replace(DIGITS_FINETUNE, warmup_steps=100)
    with pytest.raises(ValueError, match="`warmup_steps` must be smaller .*warmup_steps=100"):
        recipe.epoch_lengths(1000)


@pytest.mark.parametrize("steps", [10, 400])
def test_boundaries_that_are_not_reached(steps):
    """Of `bit_hyperrule_small`, whose last boundary is 400."""
    recipe = dataclasses.replace(RECIPES["bit_hyperrule_small"], steps=steps, warmup_steps=5)
    with pytest.raises(ValueError, match=f"`boundaries` must be smaller .* {steps}.*300, 400"):
        recipe.epoch_lengths(1000)


def test_head_of_other_classes(tmp_path):
    recipe = small_recipe()
    data = load_training_data(recipe, "digits", CLASSES)
    with pytest.raises(ValueError, match="`model` must have a head of .*3 classes.*5 outputs"):
        fit(recipe, small_model(recipe, num_classes=5), data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["missing.keras", "runs/missing", "ViT_X16"])
def test_no_such_model(model):
    with pytest.raises(ValueError, match="`(model|variant|path)` must"):
        make_model(DIGITS_FINETUNE, model, num_classes=3)


@pytest.mark.parametrize(
    "target", ["mean_colour", pytest.param("pixels", marks=pytest.mark.examples)]
)
def test_a_model_trained_on_masked_patches_is_fine_tuned(target, tmp_path):
    recipe = small_recipe(loss=target, average_momentum=0.5, learning_rate=0.3)
    model = small_model(recipe, num_classes=0)
    data = load_training_data(recipe, "digits", CLASSES)
    history = fit(recipe, model, data, tmp_path / "run")
    assert ("val_accuracy" in history[-1]) == (target == "mean_colour")
    assert history[-1]["val_loss"] < history[0]["loss"]
    saved = {path.name for path in (tmp_path / "run").glob("*.keras")}
    assert saved == {"best.keras", "last.keras", "averaged.keras", "predictor.keras"}
    tuned = make_model(small_recipe(), tmp_path / "run", num_classes=3)
    assert tuned.output_shape == (None, 3)
    averaged = load_model(tmp_path / "run" / "averaged.keras")
    for ours, theirs in zip(averaged.weights, model.weights, strict=True):
        # At the end the model has the averages.
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(theirs.value))


def test_averages_are_evaluated_and_weights_go_on(tmp_path):
    recipe = small_recipe(average_momentum=0.5)
    model = small_model(recipe)
    data = load_training_data(recipe, "digits", CLASSES)
    history = fit(recipe, model, data, tmp_path / "run")
    averaged, last = (
        load_model(tmp_path / "run" / f"{name}.keras") for name in ("averaged", "last")
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loaded, is_same in ((averaged, True), (last, False)):
        loaded.compile(loss=loss)
        assert (loaded.evaluate(data[1]) == pytest.approx(history[-1]["val_loss"])) == is_same


def test_without_a_validation_split_the_last_model_is_the_best(tmp_path):
    recipe = small_recipe()
    data = load_training_data(recipe, "digits", CLASSES, split="train+validation", validation=None)
    history = fit(recipe, small_model(recipe), data, tmp_path / "run")
    assert not any(name.startswith("val_") for name in history[-1])
    best, last = (load_model(tmp_path / "run" / f"{name}.keras") for name in ("best", "last"))
    for ours, theirs in zip(best.weights, last.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours.value), to_numpy(theirs.value))


def test_the_learning_rate_is_chosen_by_the_last_epoch():
    accuracies = {0.3: [0.9, 0.5], 0.01: [0.6, 0.7], 0.03: [0.6, 0.7]}
    tried = []

    def train(recipe):
        tried.append(recipe.learning_rate)
        return [{"val_accuracy": accuracy} for accuracy in accuracies[recipe.learning_rate]]

    recipe, found = choose_learning_rate(small_recipe(learning_rates=(0.3, 0.03, 0.01)), train)
    assert recipe.learning_rate == 0.01
    assert found == {0.01: 0.7, 0.03: 0.7, 0.3: 0.5}
    assert tried == [0.01, 0.03, 0.3]
    with pytest.raises(ValueError, match="A sweep needs `learning_rates`"):
        choose_learning_rate(dataclasses.replace(recipe, learning_rates=()), train)


def test_a_learning_rate_that_diverges_has_no_accuracy():
    def train(recipe):
        if recipe.learning_rate > 0.1:
            raise NotFiniteError("too high")
        return [{"val_accuracy": 0.0}]

    recipe, found = choose_learning_rate(small_recipe(learning_rates=(0.3, 0.01)), train)
    assert (recipe.learning_rate, found) == (0.01, {0.01: 0.0, 0.3: None})
    with pytest.raises(NotFiniteError, match="must not diverge.*learning_rates=[(]0.2, 0.3"):
        choose_learning_rate(small_recipe(learning_rates=(0.2, 0.3)), train)
    with pytest.raises(ValueError, match="must differ in their first 6 digits"):
        choose_learning_rate(small_recipe(learning_rates=(0.01, 0.010000001)), train)


def test_frozen_blocks_stay_as_they_are(tmp_path):
    tiny = vision_transformer(**TINY)
    tiny.save(tmp_path / "trained.keras")
    recipe = small_recipe(frozen_blocks=1)
    model = make_model(recipe, tmp_path / "trained.keras", num_classes=3)
    trained = {weight.path.split("/")[0] for weight in model.trainable_weights}
    assert trained == {"block_1", "encoder_norm", "head"}
    with pytest.raises(ValueError, match="`num_blocks` must be an integer from 0 to 2"):
        keras_vit.freeze_blocks(tiny, 3)
    keras_vit.freeze_blocks(tiny, 0)
    assert tiny.trainable_weights == tiny.weights


@pytest.mark.parametrize("whole", [False, True])
def test_a_saved_model_keeps_what_is_frozen(whole, tmp_path):
    tiny = vision_transformer(**TINY)
    tiny.trainable = not whole
    tiny.get_layer("block_0").trainable = whole
    save_model(tiny, tmp_path / "saved.keras")
    loaded = keras.models.load_model(tmp_path / "saved.keras")
    assert loaded.trainable == tiny.trainable
    assert [v.trainable for v in loaded.weights] == [v.trainable for v in tiny.weights]
    assert tiny.trainable == (not whole)


@pytest.mark.parametrize("whole", [False, True])
def test_the_recipe_alone_decides_what_is_trained(whole, tmp_path):
    """Whatever the model that a run starts from has frozen."""
    tiny = vision_transformer(**TINY)
    keras_vit.freeze_blocks(tiny, 1)
    tiny.get_layer("block_1").mlp.dense_0.kernel.trainable = False
    tiny.trainable = tiny.trainable and not whole
    path = tmp_path / "frozen.keras"
    tiny.save(path)
    model = make_model(small_recipe(), path, num_classes=3)
    assert len(model.trainable_weights) == len(model.weights)
    model = make_model(small_recipe(frozen_blocks=1), path, num_classes=3)
    trained = {weight.path for weight in model.trainable_weights}
    assert trained == {
        weight.path
        for weight in model.weights
        if weight.path.startswith(("block_1", "encoder_norm", "head"))
    }
