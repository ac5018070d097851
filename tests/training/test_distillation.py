"""A student learns from a teacher: its losses, its runs, and what is refused."""

import dataclasses
import json
import signal
from functools import partial

import keras
import numpy as np
import pytest

from keras_vit.models import freeze_blocks
from keras_vit.models.keras_files import load_model
from keras_vit.training import trainer
from keras_vit.training.distillation import Distiller, distill
from keras_vit.training.save_callbacks import SaveState
from tests.fixtures.contract import to_numpy
from tests.fixtures.run_to_be_killed import RECIPE
from tests.fixtures.small_runs import CLASSES, small_data, small_fit, small_model, small_recipe
from tests.fixtures.stopping import stopping
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


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


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
    expected = -(weights * log_softmax(for_labels)[np.arange(6), labels]).mean()
    if recipe.distillation == "hard":
        distance = -log_softmax(for_teacher)[np.arange(6), taught.argmax(axis=-1)].mean()
    else:
        t = recipe.temperature
        p, q = log_softmax(taught / t), log_softmax(for_teacher / t)
        distance = t**2 * (np.exp(p) * (p - q)).sum(axis=-1).mean()
    share = recipe.label_weight
    np.testing.assert_allclose(to_numpy(loss), share * expected + (1 - share) * distance, rtol=1e-5)
    # What is evaluated is the model that is saved, by the labels.
    logits = to_numpy(student(x)).astype(float)
    np.testing.assert_allclose((for_labels + for_teacher) / 2, logits, rtol=1e-5, atol=1e-6)
    evaluated = distiller.compute_loss(x, labels, outputs, training=False)
    labels_alone = -log_softmax(logits)[np.arange(6), labels].mean()
    np.testing.assert_allclose(to_numpy(evaluated), labels_alone, rtol=1e-5)


def test_the_teacher_sees_the_batch_at_its_own_size():
    seen, size = [], 16
    teacher = small_teacher(image_size=size)
    distiller = Distiller(small_recipe(), small_model(small_recipe()), teacher)
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
    recipe = small_recipe(distillation="hard", ema_momentum=0.5)
    teacher, student = small_teacher(), small_model(recipe, distillation_token=token)
    before = [to_numpy(variable.value) for variable in teacher.variables]
    run = trainer.train(
        recipe, student, "digits", tmp_path / "run", classes=CLASSES, teacher=teacher, keep=1
    )
    assert {"val_accuracy", "val_loss", "accuracy"} < set(run.history[-1])
    for variable, value in zip(teacher.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable.value), value)
    assert all(np.ptp(to_numpy(v.value)) for v in student.get_layer("head").weights)
    metadata = json.loads((tmp_path / "run" / "run.json").read_text())
    assert metadata["teacher"] == teacher.name
    assert len(metadata["teacher_digest"]) == 16
    names = {path.name for path in (tmp_path / "run").glob("*.keras")}
    assert names == {"best.keras", "last.keras", "averaged.keras"}
    saved = load_model(tmp_path / "run" / "averaged.keras")
    np.testing.assert_array_equal(
        saved.predict(images(2, 8, 8, 3), verbose=0), student.predict(images(2, 8, 8, 3), verbose=0)
    )
    # The state has no weights of the teacher.
    (state,) = (tmp_path / "run" / "states").iterdir()
    with np.load(state) as arrays:
        names = [name for name in arrays.files if name.startswith("model/")]
    assert sorted(names) == sorted(f"model/{variable.path}" for variable in student.variables)


@pytest.mark.slow
@pytest.mark.parametrize("token", [False, pytest.param(True, marks=pytest.mark.examples)])
def test_a_stopped_run_goes_on(token, tmp_path, monkeypatch):
    recipe = dataclasses.replace(RECIPE, steps=18, temperature=2.0, label_weight=0.3)

    def train(workdir):
        teacher = small_teacher()
        keras.utils.set_random_seed(0)
        student = small_model(recipe, dropout=0.1, distillation_token=token)
        options = {"teacher": teacher, "resume": True, "save_steps": 7}
        return student, trainer.train(
            recipe, student, small_data(recipe), workdir, **options
        ).history

    whole, expected = train(tmp_path / "whole")
    with monkeypatch.context() as patched:
        terminate = partial(signal.raise_signal, signal.SIGTERM)
        patched.setattr(SaveState, "on_train_batch_begin", stopping(17, terminate))
        with pytest.raises(SystemExit):
            train(tmp_path / "stopped")
    resumed, metrics = train(tmp_path / "stopped")
    assert metrics == expected
    for ours, theirs in zip(resumed.variables, whole.variables, strict=True):
        np.testing.assert_allclose(to_numpy(ours.value), to_numpy(theirs.value), rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="teacher_digest='.*' instead of"):
        trainer.train(
            *(recipe, small_model(recipe, dropout=0.1, distillation_token=token)),
            *(small_data(recipe), tmp_path / "stopped"),
            teacher=small_teacher(pooling="gap"),
            resume=True,
        )


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "teacher", "message"),
    [
        ({}, {"num_classes": 4}, "with one label per image and the dataset's 3 classes"),
        ({}, {"num_classes": 0}, "`model` must .*'pooling'"),
        ({}, {"classifier_activation": "softmax"}, "`model` must map RGB images to logits"),
        ({"loss": "sigmoid"}, {}, "A `teacher` is for the loss 'softmax'.*'sigmoid'"),
        ({"loss": "pixels"}, {}, "A `teacher` is for the loss 'softmax'.*'pixels'"),
        ({"freeze": True}, {}, "needs images, not features.*freeze=True"),
        ({"temperature": 2.0}, None, "`temperature` is for training with a `teacher`"),
        ({"label_weight": 0.0}, None, "`label_weight` is for training with a `teacher`"),
        ({"distillation": "hard"}, None, "`distillation` is for training with a `teacher`"),
    ],
)
def test_what_does_not_go_together(changes, teacher, message, tmp_path):
    recipe = small_recipe(**changes)
    teacher = None if teacher is None else small_model(small_recipe(), **teacher)
    with pytest.raises(ValueError, match=message):
        small_fit(tmp_path / "run", recipe, teacher=teacher)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_other_wrong_teachers(tmp_path):
    recipe, student = small_recipe(label_weight=0.0), small_model(small_recipe())
    run = partial(small_fit, tmp_path / "run", recipe)
    named = small_teacher()
    named.class_names = ("7", "9", "8")
    token = small_model(recipe, distillation_token=True)
    for model, teacher, message in [
        (student, named, r"the dataset's 3 classes.*'7', '9', '8'"),
        (student, student, "`teacher` must be another model than the student"),
        (token, small_teacher(), "`label_weight` must be greater than 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(model, teacher=teacher)
    train = partial(trainer.train, recipe, student, "digits", tmp_path / "run", classes=CLASSES)
    for nonsense in (tmp_path / "none.keras", "none.npz"):
        with pytest.raises(ValueError, match="`(path|model)` must be .*none"):
            train(teacher=nonsense)
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_several_labels_is_refused():
    recipe, teacher = small_recipe(), small_teacher()
    teacher.thresholds = (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="with one label per image.*`thresholds`"):
        distill(recipe, small_model(recipe), teacher, CLASSES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "`temperature` must be a positive number"),
        ({"temperature": float("nan")}, "`temperature` must be a positive number"),
        ({"temperature": -1.0}, "`temperature` must be a positive number"),
        ({"label_weight": 1.0}, "`label_weight` must be at least 0 and less than 1"),
        ({"distillation": "both"}, "`distillation` must be one of"),
        (
            {"distillation": "hard", "temperature": 2.0},
            "`temperature` needs `distillation` to be soft",
        ),
    ],
)
def test_wrong_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        small_recipe(**changes)


@pytest.mark.slow
def test_frozen_blocks_are_those_of_the_student(tmp_path):
    recipe = small_recipe(frozen_blocks=1, steps=2, warmup_steps=1)
    student = small_model(recipe, depth=2)
    freeze_blocks(student, 1)
    before = to_numpy(student.get_layer("block_0").weights[0].value)
    small_fit(tmp_path / "run", recipe, student, teacher=small_teacher())
    np.testing.assert_array_equal(to_numpy(student.get_layer("block_0").weights[0].value), before)
