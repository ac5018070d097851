"""Table 6 of the ViT paper (arXiv 2010.11929): accuracy and compute of pre-training on JFT-300M."""

from keras_vit.experiments.paper.result import PaperResult

COLUMNS = (
    *("imagenet2012", "imagenet2012_real", "cifar10", "cifar100"),
    *("oxford_iiit_pet", "oxford_flowers102", "exaflops"),
)
# Model, epochs, and its results.
_RUNS = (
    ("ViT-B/32", 7, 80.73, 86.27, 98.61, 90.49, 93.40, 99.27, 55),
    ("ViT-B/16", 7, 84.15, 88.85, 99.00, 91.87, 95.80, 99.56, 224),
    ("ViT-L/32", 7, 84.37, 88.28, 99.19, 92.52, 95.83, 99.45, 196),
    ("ViT-L/16", 7, 86.30, 89.43, 99.38, 93.46, 96.81, 99.66, 783),
    ("ViT-L/16", 14, 87.12, 89.99, 99.38, 94.04, 97.11, 99.56, 1567),
    ("ViT-H/14", 14, 88.08, 90.36, 99.50, 94.71, 97.11, 99.71, 4262),
    ("R50x1", 7, 77.54, 84.56, 97.67, 86.07, 91.11, 94.26, 50),
    ("R50x2", 7, 82.12, 87.94, 98.29, 89.20, 93.43, 97.02, 199),
    ("R101x1", 7, 80.67, 87.07, 98.48, 89.17, 94.08, 95.95, 96),
    ("R152x1", 7, 81.88, 87.96, 98.82, 90.22, 94.17, 96.94, 141),
    ("R152x2", 7, 84.97, 89.69, 99.06, 92.05, 95.37, 98.62, 563),
    ("R152x2", 14, 85.56, 89.89, 99.24, 91.92, 95.75, 98.75, 1126),
    ("R200x3", 14, 87.22, 90.15, 99.34, 93.53, 96.32, 99.04, 3306),
    ("R50x1+ViT-B/32", 7, 84.90, 89.15, 99.01, 92.24, 95.75, 99.46, 106),
    ("R50x1+ViT-B/16", 7, 85.58, 89.65, 99.14, 92.63, 96.65, 99.40, 274),
    ("R50x1+ViT-L/32", 7, 85.68, 89.04, 99.24, 92.93, 96.97, 99.43, 246),
    ("R50x1+ViT-L/16", 7, 86.60, 89.72, 99.18, 93.64, 97.03, 99.40, 859),
    ("R50x1+ViT-L/16", 14, 87.12, 89.76, 99.31, 93.89, 97.36, 99.11, 1668),
)


def _table_6():
    for model, epochs, *values in _RUNS:
        for dataset, value in zip(COLUMNS, values, strict=True):
            decimals = 0 if dataset == "exaflops" else 2
            options = {"setting": f"{epochs} epochs", "decimals": decimals}
            yield PaperResult("Table 6", model, "jft300m", dataset, value, **options)


TABLE_6 = tuple(_table_6())
