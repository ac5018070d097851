"""Compare an export with its Keras model on real images."""

import dataclasses

import numpy as np

from keras_vit.models.structure import output_name
from keras_vit.serving.predictor import predict_column
from keras_vit.serving.runner import export_runner, model_runner

# An int8 export that is as accurate as its model stays well within both limits. The difference is
# relative to `Comparison.value_range`.
MIN_AGREEMENT = 0.9
MAX_RELATIVE_DIFFERENCE = 0.5


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Differences between the logits or features of an export and of its model.

    Args:
        output: `"logits"` or `"features"`.
        num_images: number of images that were compared.
        largest_difference: largest absolute difference between two corresponding values.
        agreement: share of the images (for a segmenter, of the pixels) with the same most likely
            class, from 0 to 1; for features, the mean cosine similarity.
        value_range: difference between the model's largest and smallest value; 0 if the values do
            not depend on the image, so that the comparison proves nothing.
    """

    output: str
    num_images: int
    largest_difference: float
    agreement: float
    value_range: float

    @property
    def is_verified(self):
        """Whether the values agree up to rounding and quantization."""
        is_close = self.largest_difference <= MAX_RELATIVE_DIFFERENCE * self.value_range
        return self.value_range > 0 and is_close and self.agreement >= MIN_AGREEMENT


def verify(model, version, files, batch_size=8, output=None):
    """Compare an export, loaded from its files, with the Keras model on image files.

    `output` is `"logits"` or `"features"`; by default the output of the model.
    """
    name = output or output_name(model)
    expected, actual = (
        predict_column(runner, "path", files, (name,), batch_size)
        for runner in (model_runner(model, (name,), batch_size), export_runner(version, (name,)))
    )
    errors = [error for error in (*expected["error"], *actual["error"]) if error is not None]
    if errors:
        raise ValueError(f"`files` must be images that can be decoded. Received: {errors[0]}")
    return compare(name, expected[name], actual[name])


def compare(output, expected, actual):
    """Return the `Comparison` of two arrays of logits or features, one row for each image."""
    if output == "features":
        lengths = np.linalg.norm(expected, axis=-1) * np.linalg.norm(actual, axis=-1)
        agreement = np.sum(expected * actual, axis=-1) / np.maximum(lengths, 1e-12)
    else:
        agreement = actual.argmax(axis=-1) == expected.argmax(axis=-1)
    depends_on_images = len(expected) == 1 or np.ptp(expected, axis=0).any()
    return Comparison(
        output,
        num_images=len(expected),
        largest_difference=float(np.abs(actual - expected).max()),
        agreement=float(np.mean(agreement)),
        value_range=float(np.ptp(expected)) if depends_on_images else 0.0,
    )
