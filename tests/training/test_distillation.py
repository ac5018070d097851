"""A student learns from a teacher: its losses, its runs, and what is refused."""

import json

import keras
import numpy as np
import pytest
from scipy.special import log_softmax

from keras_vit.models import freeze_blocks
from keras_vit.models.keras_files import load_model
from keras_vit.training import trainer
from keras_vit.training.distillation import Distiller, distill
from tests.fixtures.contract import to_numpy
from tests.fixtures.small_runs import CLASSES, small_fit, small_model, small_recipe
from tests.fixtures.tiny import images

TOKENS = (False, True)


def with_random_head(model):
    """Heads are zero at the start."""
    rng = np.random.default_rng(1)
    for variable in model.get_layer("head").weights:
        variable.assign(3 * rng.normal(size=variable.shape))
    return model


def small_teacher(**options):
    keras.utils.set_random_seed(1)
    return with_random_head(small_model(small_recipe(), **options))


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 4.0, "label_weight": 0.25},
        {"distillation": "hard"},
        pytest.param({"label_weight": 0.0}, id="function matching"),
    ],
)
def test_the_loss_is_that_of_the_papers(changes, token):
    """Hinton et al., equation 3 of DeiT, and big_vision's `kl`; with weights of the labels."""
    recipe = small_recipe(**changes)
    student = with_random_head(small_model(recipe, distillation_token=token))
    teacher = small_teacher()
    distiller = Distiller(recipe, student, teacher)
    distiller.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, labels, weights = images(6, 8, 8, 3), np.arange(6) % 3, np.arange(6.0)
    outputs = distiller(x)
    loss = distiller.compute_loss(x, labels, outputs, sample_weight=weights)
    for_labels, for_teacher = (to_numpy(output).astype(float) for output in outputs)
    taught = to_numpy(teacher(x)).astype(float)
    expected = -(weights * log_softmax(for_labels, axis=-1)[np.arange(6), labels]).mean()
    if recipe.distillation == "hard":
        distance = -log_softmax(for_teacher, axis=-1)[np.arange(6), taught.argmax(axis=-1)].mean()
    else:
        t = recipe.temperature
        p, q = log_softmax(taught / t, axis=-1), log_softmax(for_teacher / t, axis=-1)
        distance = t**2 * (np.exp(p) * (p - q)).sum(axis=-1).mean()
    share = recipe.label_weight
    np.testing.assert_allclose(to_numpy(loss), share * expected + (1 - share) * distance, rtol=1e-5)
    # What is evaluated is the model that is saved, by the labels.
    logits = to_numpy(student(x)).astype(float)
    np.testing.assert_allclose((for_labels + for_teacher) / 2, logits, rtol=1e-5, atol=1e-6)
    evaluated = distiller.compute_loss(x, labels, outputs, training=False)
    labels_alone = -log_softmax(logits, axis=-1)[np.arange(6), labels].mean()
    np.testing.assert_allclose(to_numpy(evaluated), labels_alone, rtol=1e-5)


def test_the_teacher_sees_the_batch_at_its_own_size():
    seen, size = [], 16
    teacher = small_teacher(image_size=size)
    distiller = Distiller(small_recipe(), small_model(small_recipe()), teacher)
    teacher = distiller.teacher
    distiller.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = np.linspace(-1, 1, 8, dtype="float32")[None, :, None, None]
    x = np.broadcast_to(rows, (2, 8, 8, 3))
    teacher.call = lambda images, **options: seen.append(images) or keras.ops.zeros((2, 3))
    distiller.compute_loss(x, np.zeros(2), distiller(x))
    assert seen[0].shape == (2, 16, 16, 3)
    # Bilinear: rows rise from the first to the last.
    np.testing.assert_allclose(to_numpy(seen[0])[0, 1:15:2, 0, 0].mean(), 0, atol=0.1)
    assert (np.diff(to_numpy(seen[0])[0, :, 0, 0]) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("token", TOKENS)
def test_a_student_is_trained_and_the_teacher_is_not(token, tmp_path):
    changes = {"distillation": "hard", "ema_momentum": 0.5, "frozen_blocks": 1}
    recipe = small_recipe(**changes)
    teacher, student = small_teacher(), small_model(recipe, depth=2, distillation_token=token)
    freeze_blocks(student, 1)
    frozen = [*teacher.variables, *student.get_layer("block_0").variables]
    before = [to_numpy(variable.value) for variable in frozen]
    history = small_fit(tmp_path / "run", recipe, student, teacher=teacher, keep=1)
    assert {"val_accuracy", "val_loss", "accuracy"} < set(history[-1])
    for variable, value in zip(frozen, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable.value), value)
    assert all(np.ptp(to_numpy(v.value)) for v in student.get_layer("head").weights)
    metadata = json.loads((tmp_path / "run" / "run.json").read_text())
    assert metadata["teacher"] == teacher.name
    assert len(metadata["teacher_digest"]) == 16
    saved = load_model(tmp_path / "run" / "averaged.keras")
    x = images(2, 8, 8, 3)
    np.testing.assert_array_equal(to_numpy(saved(x)), to_numpy(student(x)))
    # The state has no weights of the teacher.
    (state,) = (tmp_path / "run" / "states").iterdir()
    with np.load(state) as arrays:
        names = [name for name in arrays.files if name.startswith("model/")]
    assert sorted(names) == sorted(f"model/{variable.path}" for variable in student.variables)


@pytest.mark.slow
def test_a_run_is_a_teacher_by_its_directory(tmp_path):
    short = {"steps": 2, "warmup_steps": 1}
    small_fit(tmp_path / "teacher", small_recipe(**short), small_teacher())
    recipe = small_recipe(label_weight=0.0, **short)
    options = {"classes": CLASSES, "split": "validation", "validation": "train"}
    options |= {"teacher": tmp_path / "teacher"}
    student = trainer.train(recipe, small_model(recipe), "digits", tmp_path / "run", **options)
    assert len(student.history) == 2
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["teacher"] == str(tmp_path / "teacher")


@pytest.mark.parametrize(
    ("options", "attribute", "value", "message"),
    [
        ({"num_classes": 4}, "class_names", None, "the dataset's 3 classes"),
        ({}, "class_names", ("7", "9", "8"), "the dataset's 3 classes"),
        ({}, "thresholds", (0.5, 0.5, 0.5), "for one label per image"),
        ({"classifier_activation": "softmax"}, "class_names", None, "must map .* to logits"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(options, attribute, value, message):
    recipe, teacher = small_recipe(), small_teacher(**options)
    setattr(teacher, attribute, value)
    with pytest.raises(ValueError, match=message):
        distill(recipe, small_model(recipe), teacher, CLASSES)


def test_a_token_without_labels_is_refused():
    """Its other classifier would not be trained."""
    recipe = small_recipe(label_weight=0.0)
    student = small_model(recipe, distillation_token=True)
    with pytest.raises(ValueError, match="`label_weight` must be greater than 0"):
        distill(recipe, student, small_teacher(), CLASSES)


@pytest.mark.parametrize(
    ("changes", "has_teacher", "message"),
    [
        ({"temperature": 2.0}, False, "`temperature` is for training with a `teacher`"),
        ({"loss": "sigmoid"}, True, "A `teacher` needs the loss 'softmax'"),
        ({"freeze": True}, True, "a recipe without `freeze`"),
    ],
)
def test_a_recipe_that_does_not_fit_a_teacher_is_refused(changes, has_teacher, message, tmp_path):
    teacher = small_teacher() if has_teacher else None
    with pytest.raises(ValueError, match=message):
        small_fit(tmp_path / "run", small_recipe(**changes), teacher=teacher)
    assert not (tmp_path / "run").exists()
