"""Tables 2, 5 and 7 of the ViT paper (arXiv 2010.11929): accuracies after fine-tuning."""

from keras_vit.experiments.paper.result import PaperResult

_MODELS_2 = (
    ("ViT-H/14", "jft300m"),
    ("ViT-L/16", "jft300m"),
    ("ViT-L/16", "imagenet21k"),
    ("BiT-L R152x4", "jft300m"),
)
NOISY_STUDENT = "Noisy Student (EfficientNet-L2)"
# Mean and standard deviation of three runs.
_ACCURACIES_2 = (
    ("imagenet2012", (88.55, 0.04), (87.76, 0.03), (85.30, 0.02), (87.54, 0.02)),
    ("imagenet2012_real", (90.72, 0.05), (90.54, 0.03), (88.62, 0.05), (90.54, None)),
    ("cifar10", (99.50, 0.06), (99.42, 0.03), (99.15, 0.03), (99.37, 0.06)),
    ("cifar100", (94.55, 0.04), (93.90, 0.05), (93.25, 0.05), (93.51, 0.08)),
    ("oxford_iiit_pet", (97.56, 0.03), (97.32, 0.11), (94.67, 0.15), (96.62, 0.23)),
    ("oxford_flowers102", (99.68, 0.02), (99.74, 0.00), (99.61, 0.02), (99.63, 0.03)),
    ("vtab", (77.63, 0.23), (76.28, 0.46), (72.72, 0.21), (76.29, 1.70)),
)
# The better of two accuracies on ImageNet is that of FixEfficientNet (Touvron et al., 2020).
_NOISY_STUDENT = (
    ("imagenet2012", 88.4, 1),
    ("imagenet2012", 88.5, 1),
    ("imagenet2012_real", 90.55, 2),
)
# In thousands of TPUv3-core-days, in the order of the models, and of Noisy Student.
_TPU_DAYS = ((2.5, 1), (0.68, 2), (0.23, 2), (9.9, 1), (12.3, 1))

_MODELS_5 = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")
# Without ViT-H/14 on ImageNet.
_ACCURACIES_5 = {
    "imagenet2012": (
        ("cifar10", 98.13, 97.77, 97.86, 97.94),
        ("cifar100", 87.13, 86.31, 86.35, 87.07),
        ("imagenet2012", 77.91, 73.38, 76.53, 71.16),
        ("imagenet2012_real", 83.57, 79.56, 82.19, 77.83),
        ("oxford_flowers102", 89.49, 85.43, 89.66, 86.36),
        ("oxford_iiit_pet", 93.81, 92.04, 93.64, 91.35),
    ),
    "imagenet21k": (
        ("cifar10", 98.95, 98.79, 99.16, 99.13, 99.27),
        ("cifar100", 91.67, 91.97, 93.44, 93.04, 93.82),
        ("imagenet2012", 83.97, 81.28, 85.15, 80.99, 85.13),
        ("imagenet2012_real", 88.35, 86.63, 88.40, 85.65, 88.70),
        ("oxford_flowers102", 99.38, 99.11, 99.61, 99.19, 99.51),
        ("oxford_iiit_pet", 94.43, 93.02, 94.73, 93.09, 94.82),
    ),
    "jft300m": (
        ("cifar10", 99.00, 98.61, 99.38, 99.19, 99.50),
        ("cifar100", 91.87, 90.49, 94.04, 92.52, 94.55),
        ("imagenet2012", 84.15, 80.73, 87.12, 84.37, 88.04),
        ("imagenet2012_real", 88.85, 86.27, 89.99, 88.28, 90.33),
        ("oxford_flowers102", 99.56, 99.27, 99.56, 99.45, 99.68),
        ("oxford_iiit_pet", 95.80, 93.40, 97.11, 95.83, 97.56),
    ),
}

_COLUMNS_7 = (
    ("ResNet50", "Adam"),
    ("ResNet50", "SGD"),
    ("ResNet152x2", "Adam"),
    ("ResNet152x2", "SGD"),
)
_ACCURACIES_7 = (
    ("imagenet2012", 77.54, 78.24, 84.97, 84.37),
    ("cifar10", 97.67, 97.46, 99.06, 99.07),
    ("cifar100", 86.07, 85.17, 92.05, 91.06),
    ("oxford_iiit_pet", 91.11, 91.00, 95.37, 94.79),
    ("oxford_flowers102", 94.26, 92.06, 98.62, 99.32),
    ("average", 89.33, 88.79, 94.01, 93.72),
)


def _table_2():
    source = "Table 2"
    for dataset, *results in _ACCURACIES_2:
        for model, (value, std) in zip(_MODELS_2, results, strict=True):
            yield PaperResult(source, *model, dataset, value, std)
    for dataset, value, decimals in _NOISY_STUDENT:
        yield PaperResult(source, NOISY_STUDENT, None, dataset, value, decimals=decimals)
    models = (*_MODELS_2, (NOISY_STUDENT, None))
    for model, (value, decimals) in zip(models, _TPU_DAYS, strict=True):
        yield PaperResult(source, *model, "tpu_days", value, decimals=decimals)


def _table_5():
    for pretraining, lines in _ACCURACIES_5.items():
        for dataset, *values in lines:
            models = _MODELS_5[: len(values)]
            for model, value in zip(models, values, strict=True):
                yield PaperResult("Table 5", model, pretraining, dataset, value)


def _table_7():
    for dataset, *values in _ACCURACIES_7:
        for (model, optimizer), value in zip(_COLUMNS_7, values, strict=True):
            yield PaperResult("Table 7", model, "jft300m", dataset, value, setting=optimizer)


TABLE_2, TABLE_5, TABLE_7 = tuple(_table_2()), tuple(_table_5()), tuple(_table_7())
