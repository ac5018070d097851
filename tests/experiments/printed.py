"""The paper's tables as a second transcription has them: `tests/data/paper/`."""

import csv
import pathlib

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "paper"
PRETRAINING = {
    "": "",
    "ImageNet": "imagenet2012",
    "I21k": "imagenet21k",
    "ImageNet-21k": "imagenet21k",
    "JFT": "jft300m",
    "JFT-300M": "jft300m",
}
DATASETS = {
    "ImageNet": "imagenet2012",
    "ImageNet ReaL": "imagenet2012_real",
    "ReaL": "imagenet2012_real",
    "CIFAR-10": "cifar10",
    "CIFAR10": "cifar10",
    "CIFAR-100": "cifar100",
    "CIFAR100": "cifar100",
    "Pets": "oxford_iiit_pet",
    "Oxford-IIIT Pets": "oxford_iiit_pet",
    "Oxford-IIIT-Pets": "oxford_iiit_pet",
    "Flowers": "oxford_flowers102",
    "Oxford Flowers-102": "oxford_flowers102",
    "VTAB (19 tasks)": "vtab",
    "VTAB (19 tasks, 1000 examples each)": "vtab",
    "TPUv3-core-days": "tpu_days",
    "exaFLOPs": "exaflops",
    "Average": "average",
}
TASKS = {
    "Caltech101": "vtab/caltech101",
    "CIFAR-100": "vtab/cifar100",
    "DTD": "vtab/dtd",
    "Flowers102": "vtab/oxford_flowers102",
    "Pets": "vtab/oxford_iiit_pet",
    "Sun397": "vtab/sun397",
    "SVHN": "vtab/svhn",
    "Camelyon": "vtab/patch_camelyon",
    "EuroSAT": "vtab/eurosat",
    "Resisc45": "vtab/resisc45",
    "Retinopathy": "vtab/diabetic_retinopathy",
    "Clevr-Count": "vtab/clevr_count",
    "Clevr-Dist": "vtab/clevr_distance",
    "DMLab": "vtab/dmlab",
    "dSpr-Loc": "vtab/dsprites_location",
    "dSpr-Ori": "vtab/dsprites_orientation",
    "KITTI-Dist": "vtab/kitti_distance",
    "sNORB-Azim": "vtab/smallnorb_azimuth",
    "sNORB-Elev": "vtab/smallnorb_elevation",
    "Mean": "vtab",
}
# Their pre-training set is not in the header of Table 2.
MODELS = {
    ("BiT-L R152x4", ""): ("BiT-L R152x4", "jft300m"),
    ("Noisy Student Eff-L2", ""): ("Noisy Student (EfficientNet-L2)", ""),
}


def read_printed(number):
    """Return the lines of a table, dictionaries of strings."""
    with (FOLDER / f"table_{number}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def printed_results(number):
    """Return `(model, pretraining, dataset, setting, value, std)` per result, as strings."""
    for line in read_printed(number):
        setting, datasets = "", TASKS if number == 9 else DATASETS
        key = line.get("model"), line.get("pretraining", "")
        model, pretraining = MODELS.get(key, (key[0], PRETRAINING[key[1]]))
        if number == 6:
            # The scaling study of this package writes the width of a hybrid's ResNet, too.
            model = model.replace("R50+", "R50x1+")
            pretraining, setting = "jft300m", f"{line['epochs']} epochs"
        elif number == 7:
            pretraining, setting = "jft300m", line["optimizer"]
        elif number == 8:
            model, setting = "ViT-B/16", f"{line['embedding']}, {line['place']}"
        dataset = "imagenet2012" if number == 8 else datasets[line["dataset"]]
        yield model, pretraining, dataset, setting, line["value"], line.get("std", "")
