"""The augmentation settings of "How to train your ViT" (AugReg), as rows of a table."""

import dataclasses

# The greatest magnitude in arXiv 1909.13719. The full scale of the operations is 10, and they go on
# above it: AugReg's go up to 20.
MAX_MAGNITUDE = 30


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The augmentation of training images after the crop and the flip.

    Args:
        layers: number of operations of RandAugment per image; 0 for none.
        magnitude: magnitude of RandAugment, from 0 to 30; the original's full scale is 10.
        mixup: parameter of the Beta distribution from which the share of the other image is drawn;
            0 for no MixUp.
        cutmix: the same for CutMix, which pastes a rectangle of another image.
        erasing: share of the images in which a rectangle is erased (Random Erasing).

    Raises:
        ValueError: if a value is out of range.
    """

    layers: int = 0
    magnitude: float = 0
    mixup: float = 0
    cutmix: float = 0
    erasing: float = 0

    def __post_init__(self):
        rules = {
            "layers": (self.layers >= 0 and self.layers == int(self.layers), "a whole number"),
            "magnitude": (0 <= self.magnitude <= MAX_MAGNITUDE, f"from 0 to {MAX_MAGNITUDE}"),
            "mixup": (self.mixup >= 0, "at least 0"),
            "cutmix": (self.cutmix >= 0, "at least 0"),
            "erasing": (0 <= self.erasing <= 1, "from 0 to 1"),
        }
        for name, (is_right, rule) in rules.items():
            if not is_right:
                raise ValueError(f"`{name}` must be {rule}. Received: {name}={getattr(self, name)}")

    @property
    def mixes(self):
        """Whether images are mixed with others, so that labels are soft labels."""
        return self.mixup > 0 or self.cutmix > 0


# Section 3.4 of "How to train your ViT?" (arXiv 2106.10270), `configs/vit_i21k.py` of big_vision.
# `light1` changes images much: at magnitude 0 Posterize keeps one bit, Solarize inverts, and Color,
# Contrast and Brightness keep a tenth; operations without a magnitude, such as Equalize, act too.
# `light0` occurs in names of published files, but its settings are not published.
AUGMENTATIONS = {
    "none": Augmentation(),
    "light0": Augmentation(),
    "light1": Augmentation(layers=2, magnitude=0),
    "light2": Augmentation(layers=2, magnitude=10, mixup=0.2),
    "medium1": Augmentation(layers=2, magnitude=15, mixup=0.2),
    "medium2": Augmentation(layers=2, magnitude=15, mixup=0.5),
    "strong1": Augmentation(layers=2, magnitude=20, mixup=0.5),
    "strong2": Augmentation(layers=2, magnitude=20, mixup=0.8),
    # `bit_hyperrule.py` of big_transfer, for 20,000 images or more.
    "bit": Augmentation(mixup=0.1),
    # Function matching, `configs/proj/distill/` of big_vision.
    "mixup": Augmentation(mixup=1.0),
}


def find_augmentation(augmentation):
    """Return an `Augmentation`, given itself or its name in `AUGMENTATIONS`."""
    if isinstance(augmentation, Augmentation):
        return augmentation
    if augmentation not in AUGMENTATIONS:
        raise ValueError(
            f"`augmentation` must be one of {', '.join(AUGMENTATIONS)}, or an `Augmentation`. "
            f"Received: augmentation={augmentation!r}"
        )
    return AUGMENTATIONS[augmentation]
