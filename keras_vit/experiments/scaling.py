"""The scaling study of the ViT paper: which models it compares."""

import dataclasses

from keras_vit.evaluation.compute import count_training_exaflops
from keras_vit.models import find_variant

# JFT-300M.
NUM_IMAGES, NUM_CLASSES = 303e6, 18_000


@dataclasses.dataclass(frozen=True)
class ScalingStudyRow:
    """One model of the scaling study, pre-trained on JFT-300M.

    Args:
        name: in the paper.
        builder: name of its builder here.
        epochs: of pre-training.
        imagenet: top-1 after fine-tuning on ImageNet, in percent, as reported.
        exaflops: compute of the pre-training, as reported.
    """

    name: str
    builder: str
    epochs: int
    imagenet: float
    exaflops: int


# Table 6 of the ViT paper (arXiv 2010.11929); figure 5, section 4.4.
SCALING_STUDY = (
    ScalingStudyRow("ViT-B/32", "ViT_B32", 7, 80.73, 55),
    ScalingStudyRow("ViT-B/16", "ViT_B16", 7, 84.15, 224),
    ScalingStudyRow("ViT-L/32", "ViT_L32", 7, 84.37, 196),
    ScalingStudyRow("ViT-L/16", "ViT_L16", 7, 86.30, 783),
    ScalingStudyRow("ViT-L/16", "ViT_L16", 14, 87.12, 1567),
    ScalingStudyRow("ViT-H/14", "ViT_H14", 14, 88.08, 4262),
    ScalingStudyRow("R50x1", "BiT_R50x1", 7, 77.54, 50),
    ScalingStudyRow("R50x2", "BiT_R50x2", 7, 82.12, 199),
    ScalingStudyRow("R101x1", "BiT_R101x1", 7, 80.67, 96),
    ScalingStudyRow("R152x1", "BiT_R152x1", 7, 81.88, 141),
    ScalingStudyRow("R152x2", "BiT_R152x2", 7, 84.97, 563),
    ScalingStudyRow("R152x2", "BiT_R152x2", 14, 85.56, 1126),
    ScalingStudyRow("R200x3", "BiT_R200x3", 14, 87.22, 3306),
    ScalingStudyRow("R50x1+ViT-B/32", "R50_B32", 7, 84.90, 106),
    ScalingStudyRow("R50x1+ViT-B/16", "R50_B16", 7, 85.58, 274),
    ScalingStudyRow("R50x1+ViT-L/32", "R50_L32", 7, 85.68, 246),
    ScalingStudyRow("R50x1+ViT-L/16", "R50_L16", 7, 86.60, 859),
    ScalingStudyRow("R50x1+ViT-L/16", "R50_L16", 14, 87.12, 1668),
)


def count_exaflops(row):
    """Our count of the compute of a row's pre-training, beside what the paper reports.

    Args:
        row: of `SCALING_STUDY`.

    Returns:
        A float, in exaFLOPs.

    Example:
    >>> row = SCALING_STUDY[1]
    >>> row.exaflops, round(count_exaflops(row))
    (224, 224)
    """
    variant = find_variant(row.builder)
    return count_training_exaflops(variant, NUM_IMAGES, row.epochs, NUM_CLASSES)
