"""Distillation: a student learns the logits of a trained teacher."""

import hashlib
import re

import keras
from keras import ops

from keras_vit.models.structure import check_classifier, has_distillation_token
from keras_vit.models.unused_tokens import without_unused_tokens


# Why not `keras.distillation.Distiller` (Keras 3.15): it ignores sample weights, it evaluates the
# loss of the teacher instead of the loss of the labels, and labels and teacher train the same
# output, where DeiT has two heads. `LogitsDistillation` gets `SoftLoss` or `HardLoss`, because its
# default loss compares the logits, and Keras's divergence has no gradient where a probability is
# below 1e-7.
class Distiller(keras.Model):
    """A student model and its frozen teacher. Compile it with the loss of the labels.

    The loss is `label_weight` times the loss of the labels, plus `1 - label_weight` times the loss
    of the teacher. With soft distillation, the loss of the teacher is the Kullback-Leibler
    divergence at a temperature, times the squared temperature. With hard distillation, it is the
    cross-entropy with the teacher's most likely class. The teacher gets the student's batch (after
    crops and mixing), resized to the teacher's image size. If the student has a distillation token,
    the class token learns the labels and the distillation token learns from the teacher. The
    teacher is not used in evaluation. Both models return logits for the same classes.

    Reference:
        Hinton et al. (arXiv 1503.02531); DeiT (arXiv 2012.12877); function matching
        (arXiv 2106.05237) and `trainers/proj/distill/distill.py` of big_vision.
    """

    def __init__(self, recipe, student, teacher):
        super().__init__(name="distiller")
        self.student = without_unused_tokens(student)
        self.teacher = without_unused_tokens(teacher)
        teacher.trainable = False
        self.label_weight = recipe.label_weight
        self.temperature = recipe.temperature
        loss = HardLoss() if recipe.distillation == "hard" else SoftLoss()
        self.teacher_loss = keras.distillation.LogitsDistillation(self.temperature, loss)
        self.trunk = None
        if has_distillation_token(student):
            trunk = keras.Model(student.inputs, student.get_layer("head").input)
            self.trunk = without_unused_tokens(trunk)

    def call(self, images, training=None):
        # Return two outputs: logits for the loss of the labels, and for the loss of the teacher.
        if self.trunk is None:
            return (self.student(images, training=training),) * 2
        return self.student.get_layer("head").both(self.trunk(images, training=training))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not training:
            return super().compute_loss(x, y, sum(y_pred) / 2, sample_weight, training)
        loss = super().compute_loss(x, y, y_pred[0], sample_weight, training)
        teacher_loss = self.teacher_loss.compute_loss(self._teacher_logits(x), y_pred[1])
        weight = (1 - self.label_weight) * self.temperature**2
        return self.label_weight * loss + weight * teacher_loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, sum(y_pred) / 2, sample_weight)

    def _teacher_logits(self, images):
        size = self.teacher.input_shape[1:3]
        if None not in size and size != tuple(images.shape[1:3]):
            images = ops.image.resize(images, size, antialias=True, data_format="channels_last")
        return ops.stop_gradient(self.teacher(images, training=False))


class SoftLoss(keras.losses.Loss):
    """The Kullback-Leibler divergence from the teacher's probabilities to the student's."""

    def call(self, teacher_logits, logits):
        probabilities = ops.softmax(teacher_logits)
        cross_entropy, entropy = (
            ops.categorical_crossentropy(probabilities, values, from_logits=True)
            for values in (logits, teacher_logits)
        )
        return cross_entropy - entropy


class HardLoss(keras.losses.Loss):
    """The cross-entropy with the teacher's most likely class."""

    def call(self, teacher_logits, logits):
        classes = ops.argmax(teacher_logits, axis=-1)
        return ops.sparse_categorical_crossentropy(classes, logits, from_logits=True)


def check_teacher_settings(recipe, teacher):
    """Raise an error if a recipe and a teacher do not fit.

    Without a teacher, the recipe may not change settings of distillation.
    """
    if teacher is not None and (recipe.loss != "softmax" or recipe.freeze):
        raise ValueError(
            "A `teacher` needs the loss 'softmax', and a recipe without `freeze`. Received: "
            f"loss={recipe.loss!r}, freeze={recipe.freeze} and a teacher"
        )
    changed = recipe.changed(("distillation", "temperature", "label_weight"))
    if teacher is None and changed:
        raise ValueError(
            f"`{changed[0]}` is for training with a `teacher`. Received: "
            f"{changed[0]}={getattr(recipe, changed[0])!r} and no teacher"
        )


def distill(recipe, model, teacher, class_names):
    """Return the `Distiller` of a run, and the metadata to record about the teacher."""
    teacher_names, num_classes = getattr(teacher, "class_names", None), check_classifier(teacher)
    names = teacher_names or class_names
    # A model may name ImageNet's classes by words, and a dataset by synsets such as n01440764. Both
    # have the same order.
    are_words = [not re.fullmatch(r"n\d{8}", listed[0]) for listed in (names, class_names)]
    is_same = list(names) == list(class_names) or are_words == [True, False]
    has_thresholds = getattr(teacher, "thresholds", None) is not None
    if teacher is model or has_thresholds or num_classes != len(class_names) or not is_same:
        raise ValueError(
            "`teacher` must be another model than the student, for one label per image and the "
            f"dataset's {len(class_names)} classes {class_names!r:.300}. Received: the teacher "
            f"{teacher.name!r} with {num_classes} classes, named {teacher_names!r:.300}"
            f"{', and `thresholds` for several labels' if has_thresholds else ''}"
        )
    if has_distillation_token(model) and not recipe.label_weight:
        raise ValueError(
            "`label_weight` must be greater than 0 for a model with a distillation token, whose "
            f"class token learns the labels. Received: label_weight={recipe.label_weight}"
        )
    digest = hashlib.sha256()
    for variable in teacher.variables:
        digest.update(ops.convert_to_numpy(variable).tobytes())
    return Distiller(recipe, model, teacher), {"teacher_digest": digest.hexdigest()[:16]}
