"""The table of published checkpoints: files of Google and torchvision, repositories of the Hub."""

import dataclasses

from keras_vit.checkpoints.formats.torchvision import TORCHVISION
from keras_vit.core.image_spec import ImageSpec

IMAGENET_21K = 21843  # Number of classes for BiT and ViT; other releases have 21841.

VIT_README = "google-research/vision_transformer README.md"
VIT_AUGREG = "google-research/vision_transformer vit_jax_augreg.ipynb"
BIT_README = "google-research/big_transfer README.md"
BV_VIT = "google-research/big_vision big_vision/models/vit.py"
BV_DISTILL = "google-research/big_vision big_vision/configs/proj/distill/README.md"
TIMM_VIT = "huggingface/pytorch-image-models timm/models/vision_transformer.py"
TIMM_HYBRID = "huggingface/pytorch-image-models timm/models/vision_transformer_hybrid.py"
# This notebook prints the best rows of AugReg's index.csv at 224 pixels, with their accuracies
# (`adapt_final_test`).
INDEX = "sayakpaul/ViT-jax2tf model-selector.ipynb"

DINOV2_README = "facebookresearch/dinov2 README.md"
DEIT_README = "facebookresearch/deit README_deit.md"
DINOV3_README = "facebookresearch/dinov3 README.md"
TIMM = "huggingface/pytorch-image-models"
TRANSFORMERS = "huggingface/transformers docs"
TORCHVISION_VIT = "pytorch/vision torchvision/models/vision_transformer.py"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One published checkpoint.

    Args:
        variant: name of the builder of the model.
        tag: name among the checkpoints of this builder, as in `weights="imagenet21k"`.
        url: address of the file.
        image_size: side of the images in the last training, in pixels.
        num_classes: width of the head, 0 for an image tower without a head.
        representation_size: width of the hidden layer `pre_logits` of the head, or `None`.
        activation: activation of the MLPs: `"gelu_tanh"`, `"gelu"` (erf; weights trained in
            PyTorch), or `"relu"` (BiT).
        pooling: pooling before the head.
        position_embedding: kind of the position embedding. Files without learned positions do not
            record it.
        zero_head: whether the head was set to zero before publication.
        accuracy: top-1 accuracy on ImageNet-1k in percent, reported for this file, or `None`.
        source: where the file and its accuracy are published: a file of a repository, or arXiv.
        license: license of the weights, by its name on the Hub; empty if none is given.
        linear_accuracy: reported top-1 accuracy on ImageNet-1k, in percent, of a linear classifier
            on the features of a file without a classifier.
        image_spec: how images are prepared, for files that do not record it; `None` for the
            default of the layout.
    """

    variant: str
    tag: str
    url: str
    image_size: int
    num_classes: int
    representation_size: int | None = None
    activation: str = "gelu_tanh"
    pooling: str = "token"
    position_embedding: str = "learned"
    zero_head: bool = False
    accuracy: float | None = None
    source: str = ""
    license: str = ""
    linear_accuracy: float | None = None
    image_spec: ImageSpec | None = None

    @property
    def name(self):
        """Name among all published checkpoints, such as `"ViT_B16/imagenet21k"`."""
        return f"{self.variant}/{self.tag}"


def _imagenet21k(variant, file, representation_size):
    """Return the row of a pre-trained file of the ViT paper.

    Its head is zero: "we explicitly set the heads to zero for the non-fine-tuned models"
    (google-research/vision_transformer#10; seen for B/16, L/32 and H/14 in #10, #32 and #252).
    """
    url = f"gs://vit_models/imagenet21k/{file}.npz"
    fields = {"zero_head": True, "source": VIT_README}
    return Checkpoint(variant, "imagenet21k", url, 224, IMAGENET_21K, representation_size, **fields)


def _imagenet2012(variant, file, tag="imagenet2012", image_size=384, accuracy=None):
    """Return the row of a fine-tuned file of the ViT paper.

    The README's accuracies at 224 pixels belong to these files. Its accuracies at 384 pixels belong
    to other runs, so the rows at 384 pixels have none.
    """
    url = f"gs://vit_models/imagenet21k+imagenet2012/{file}.npz"
    return Checkpoint(variant, tag, url, image_size, 1000, accuracy=accuracy, source=VIT_README)


def _augreg(variant, model, settings, tuned_size=None, accuracy=None, lr=0.03, source=VIT_README):
    """Return a row of "How to train your ViT?" (arXiv 2106.10270).

    `settings` is the part of the file's name with the settings of the pre-training. `tuned_size` is
    the image size of the fine-tuning, or `None`.
    """
    url = f"gs://vit_models/augreg/{model}-i21k-300ep-lr_0.001-{settings}"
    if tuned_size is None:
        tag, image_size, num_classes = "augreg_imagenet21k", 224, IMAGENET_21K
    else:
        tag = "augreg_imagenet2012" if tuned_size == 224 else f"augreg_imagenet2012_{tuned_size}"
        url += f"--imagenet2012-steps_20k-lr_{lr}-res_{tuned_size}"
        image_size, num_classes = tuned_size, 1000
    fields = {"accuracy": accuracy, "source": source}
    return Checkpoint(variant, tag, f"{url}.npz", image_size, num_classes, **fields)


def _sam(variant, file, source):
    """Return the row of a model trained with sharpness-aware minimization (arXiv 2106.01548)."""
    return Checkpoint(variant, "sam", f"gs://vit_models/sam/{file}.npz", 224, 1000, source=source)


def _baseline(epochs, accuracy=None, source=BV_VIT):
    """Return the row of a model of "Better plain ViT baselines" (arXiv 2205.01580)."""
    tag, url = f"imagenet2012_{epochs}ep", f"gs://big_vision/vit_s16_i1k_{epochs}ep.npz"
    fields = {"representation_size": 384, "pooling": "gap", "position_embedding": "sincos2d"}
    return Checkpoint("ViT_S16", tag, url, 224, 1000, accuracy=accuracy, source=source, **fields)


def _deit3(variant, size, *accuracies):
    """Yield the rows of DeiT III (arXiv 2204.07118); all files have 1000 classes.

    big_vision converted the weights to images in [-1, 1]. The GELU is the erf GELU of PyTorch.
    """
    files = ("224_1k", "384_1k", "224_21k", "384_21k")
    for file, accuracy in zip(files, accuracies, strict=True):
        url = f"gs://big_vision/zoo/deit3/bv_deit_3_{size}_{file}.npz"
        source = f"facebookresearch/deit README_revenge.md; {BV_VIT}"
        fields = {"activation": "gelu", "accuracy": accuracy, "source": source}
        yield Checkpoint(variant, f"deit3_{file}", url, int(file[:3]), 1000, **fields)


def _siglip(variant, tag, file, image_size):
    """Return the row of a SigLIP image tower. The file contains a text tower too."""
    url = f"gs://big_vision/{file}.npz"
    return Checkpoint(variant, tag, url, image_size, 0, pooling="map", source=BV_VIT)


def _bit(variant, tag, file, image_size, num_classes, accuracy=None, source=BIT_README):
    """Return a row of Big Transfer (arXiv 1912.11370) or of its distilled models (2106.05237)."""
    url = f"gs://bit_models/{file}.npz"
    fields = {"activation": "relu", "accuracy": accuracy, "source": source}
    return Checkpoint(variant, tag, url, image_size, num_classes, **fields)


GOOGLE_CHECKPOINTS = (
    _imagenet21k("ViT_B32", "ViT-B_32", 768),
    _imagenet21k("ViT_B16", "ViT-B_16", 768),
    _imagenet21k("ViT_L32", "ViT-L_32", 1024),
    _imagenet21k("ViT_L16", "ViT-L_16", 1024),
    _imagenet21k("ViT_H14", "ViT-H_14", 1280),
    _imagenet21k("R50_B16", "R50+ViT-B_16", 768),
    _imagenet2012("ViT_B32", "ViT-B_32"),
    _imagenet2012("ViT_B16", "ViT-B_16"),
    _imagenet2012("ViT_B16", "ViT-B_16-224", "imagenet2012_224", 224, 81.2),
    _imagenet2012("ViT_L32", "ViT-L_32"),
    _imagenet2012("ViT_L16", "ViT-L_16"),
    _imagenet2012("ViT_L16", "ViT-L_16-224", "imagenet2012_224", 224, 82.7),
    _imagenet2012("R50_B16", "R50+ViT-B_16"),
    # The files that AugReg recommends: for each size, the file with the best pre-training metrics.
    # (The defaults of timm differ.) B/8 is in the notebook, but not in the table of the README.
    _augreg("ViT_Ti16", "Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0"),
    _augreg("ViT_S32", "S_32", "aug_none-wd_0.1-do_0.0-sd_0.0"),
    _augreg("ViT_S16", "S_16", "aug_light1-wd_0.03-do_0.0-sd_0.0"),
    _augreg("ViT_B32", "B_32", "aug_light1-wd_0.1-do_0.0-sd_0.0"),
    _augreg("ViT_B16", "B_16", "aug_medium1-wd_0.1-do_0.0-sd_0.0"),
    _augreg("ViT_B8", "B_8", "aug_medium2-wd_0.1-do_0.0-sd_0.0", source=VIT_AUGREG),
    _augreg("ViT_L16", "L_16", "aug_strong1-wd_0.1-do_0.0-sd_0.0"),
    _augreg("R_Ti16", "R_Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0"),
    _augreg("R26_S32", "R26_S_32", "aug_light1-wd_0.1-do_0.0-sd_0.0"),
    _augreg("R50_L32", "R50_L_32", "aug_medium1-wd_0.1-do_0.1-sd_0.1"),
    _augreg("ViT_Ti16", "Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0", 384, 78.22),
    _augreg("ViT_S32", "S_32", "aug_none-wd_0.1-do_0.0-sd_0.0", 384, 79.58, 0.01),
    _augreg("ViT_S16", "S_16", "aug_light1-wd_0.03-do_0.0-sd_0.0", 384, 83.73),
    _augreg("ViT_B32", "B_32", "aug_light1-wd_0.1-do_0.0-sd_0.0", 384, 83.59, 0.01),
    _augreg("ViT_B16", "B_16", "aug_medium1-wd_0.1-do_0.0-sd_0.0", 384, 85.49),
    _augreg("ViT_L16", "L_16", "aug_strong1-wd_0.1-do_0.0-sd_0.0", 384, 85.59, 0.01),
    _augreg("R_Ti16", "R_Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0", 384, 75.40),
    _augreg("R26_S32", "R26_S_32", "aug_light1-wd_0.1-do_0.0-sd_0.0", 384, 83.85, 0.01),
    _augreg("R50_L32", "R50_L_32", "aug_medium1-wd_0.1-do_0.1-sd_0.1", 384, 85.99, 0.01),
    # The README recommends no files at 224 pixels. These were fine-tuned from the files above.
    _augreg("ViT_Ti16", "Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0", 224, source=TIMM_VIT),
    _augreg("ViT_S16", "S_16", "aug_light1-wd_0.03-do_0.0-sd_0.0", 224, 80.46, 0.03, INDEX),
    _augreg("ViT_B16", "B_16", "aug_medium1-wd_0.1-do_0.0-sd_0.0", 224, None, 0.01, TIMM_VIT),
    _augreg("ViT_B8", "B_8", "aug_medium2-wd_0.1-do_0.0-sd_0.0", 224, 85.58, source=VIT_AUGREG),
    _augreg("R_Ti16", "R_Ti_16", "aug_none-wd_0.03-do_0.0-sd_0.0", 224, source=TIMM_HYBRID),
    _augreg("R50_L32", "R50_L_32", "aug_medium1-wd_0.1-do_0.1-sd_0.1", 224, 83.78, 0.01, INDEX),
    # For these three builders, no accuracy at 224 pixels is reported with the recommended settings.
    # These are the best files for which an accuracy is reported.
    _augreg("ViT_B32", "B_32", "aug_medium1-wd_0.03-do_0.0-sd_0.0", 224, 79.44, 0.03, INDEX),
    _augreg("ViT_L16", "L_16", "aug_medium1-wd_0.1-do_0.1-sd_0.1", 224, 85.72, 0.01, INDEX),
    _augreg("R26_S32", "R26_S_32", "aug_light0-wd_0.03-do_0.1-sd_0.1", 224, 80.94, 0.03, INDEX),
    _sam("ViT_S16", "ViT-S_16", f"{VIT_README} (only the bucket is named)"),
    _sam("ViT_B32", "ViT-B_32", TIMM_VIT),
    _sam("ViT_B16", "ViT-B_16", TIMM_VIT),
    _sam("ViT_L32", "ViT-L_32", "arXiv 2305.16292, its repository's README.md"),
    _sam("ViT_L16", "ViT-L_16", "arXiv 2305.16292, its repository's README.md"),
    _baseline(90, 76.5, "google-research/big_vision big_vision/configs/vit_s16_i1k.py"),
    _baseline(150),
    _baseline(300, 80.0, "arXiv 2205.01580, abstract"),
    *_deit3("ViT_S16", "small", 81.4, 83.4, 83.1, 84.8),
    *_deit3("ViT_B16", "base", 83.8, 85.0, 85.7, 86.7),
    *_deit3("ViT_L16", "large", 84.9, 85.8, 87.0, 87.7),
    _siglip("ViT_B16", "siglip_224", "siglip/webli_en_b16_224_63724782", 224),
    _siglip("ViT_B16", "siglip_256", "siglip/webli_en_b16_256_60500360", 256),
    _siglip("ViT_B16", "siglip_384", "siglip/webli_en_b16_384_68578854", 384),
    _siglip("ViT_B16", "siglip_512", "siglip/webli_en_b16_512_68580893", 512),
    _siglip("ViT_B16", "siglip_i18n_256", "siglip/webli_i18n_b16_256_66117334", 256),
    _siglip("ViT_L16", "siglip_256", "siglip/webli_en_l16_256_60552751", 256),
    _siglip("ViT_L16", "siglip_384", "siglip/webli_en_l16_384_63634585", 384),
    _siglip("ViT_So400m14", "siglip_224", "siglip/webli_en_so400m_224_57633886", 224),
    # Published for 384 = 27 * 14 + 6 pixels: the original model ignores the last 6 pixels.
    _siglip("ViT_So400m14", "siglip_384", "siglip/webli_en_so400m_384_58765454", 378),
    _siglip("ViT_B32", "siglip2_256", "siglip2/siglip2_b32_256", 256),
    _siglip("ViT_B16", "siglip2_224", "siglip2/siglip2_b16_224", 224),
    _siglip("ViT_B16", "siglip2_256", "siglip2/siglip2_b16_256", 256),
    _siglip("ViT_B16", "siglip2_384", "siglip2/siglip2_b16_384", 384),
    _siglip("ViT_B16", "siglip2_512", "siglip2/siglip2_b16_512", 512),
    _siglip("ViT_L16", "siglip2_256", "siglip2/siglip2_l16_256", 256),
    _siglip("ViT_L16", "siglip2_384", "siglip2/siglip2_l16_384", 384),
    _siglip("ViT_L16", "siglip2_512", "siglip2/siglip2_l16_512", 512),
    _siglip("ViT_So400m14", "siglip2_224", "siglip2/siglip2_so400m14_224", 224),
    _siglip("ViT_So400m14", "siglip2_384", "siglip2/siglip2_so400m14_384", 378),
    # BiT-S is trained on ImageNet-1k, BiT-M on ImageNet-21k. Fine-tuning used crops of 480
    # (`get_resolution` in bit_hyperrule.py). The accuracies in the README belong to other runs.
    *(
        _bit(f"BiT_R{size}", "imagenet2012", f"BiT-S-R{size}", 224, 1000)
        for size in ("50x1", "50x3", "101x1", "101x3", "152x4")
    ),
    *(
        _bit(f"BiT_R{size}", "imagenet21k", f"BiT-M-R{size}", 224, IMAGENET_21K)
        for size in ("50x1", "50x3", "101x1", "101x3", "152x2", "152x4")
    ),
    *(
        _bit(f"BiT_R{size}", "imagenet21k_imagenet2012", f"BiT-M-R{size}-ILSVRC2012", 480, 1000)
        for size in ("50x1", "50x3", "101x1", "101x3", "152x2", "152x4")
    ),
    _bit("BiT_R50x1", "distilled_160", "distill/R50x1_160", 160, 1000, 80.5),
    _bit("BiT_R50x1", "distilled_224", "distill/R50x1_224", 224, 1000, 82.8),
    _bit("BiT_R152x2", "teacher_224", "distill/R152x2_T_224", 224, 1000, 83.0, BV_DISTILL),
    _bit("BiT_R152x2", "teacher_384", "distill/R152x2_T_384", 384, 1000, 84.3, BV_DISTILL),
)


def _timm(variant, tag, name, image_size, license="apache-2.0", source=TIMM, **fields):
    """Return the row of a repository of timm."""
    fields = {"num_classes": 0, "activation": "gelu", **fields}
    url = f"hf://timm/{name}"
    return Checkpoint(variant, tag, url, image_size, license=license, source=source, **fields)


def _dinov2(variant, size, linear_accuracy, linear_accuracy_with_registers):
    """Yield the rows of DINOv2 (arXiv 2304.07193), without and with registers (2309.16588)."""
    activation = "silu" if size == "giant" else "gelu"
    for tag, name, accuracy in (
        ("dinov2", f"vit_{size}_patch14_dinov2.lvd142m", linear_accuracy),
        ("dinov2_reg4", f"vit_{size}_patch14_reg4_dinov2.lvd142m", linear_accuracy_with_registers),
    ):
        fields = {"activation": activation, "linear_accuracy": accuracy, "source": DINOV2_README}
        yield _timm(variant, tag, name, 518, **fields)


def _dinov3(variant, name, tag="dinov3", data="lvd1689m", activation="gelu"):
    """Return a row of DINOv3 (arXiv 2508.10104); downloads require an access request."""
    url = f"hf://facebook/dinov3-{name}-pretrain-{data}"
    fields = {"activation": activation, "license": "dinov3-license", "source": DINOV3_README}
    return Checkpoint(variant, tag, url, 224, 0, position_embedding="rotary", **fields)


def _deit(variant, size, image_size, accuracy):
    """Return a row of DeiT with a distillation token (arXiv 2012.12877)."""
    tag = "deit_distilled" if image_size == 224 else f"deit_distilled_{image_size}"
    name = f"deit_{size}_distilled_patch16_{image_size}.fb_in1k"
    fields = {"num_classes": 1000, "accuracy": accuracy, "source": DEIT_README}
    return _timm(variant, tag, name, image_size, **fields)


def _mae(variant, name):
    """Return the row of an encoder of MAE (arXiv 2111.06377)."""
    return _timm(variant, "mae", f"{name}.mae", 224, "cc-by-nc-4.0")


def _siglip2(variant, size, image_size):
    """Return a row of SigLIP 2 (arXiv 2502.14786) in timm, with the tanh GELU."""
    name = f"vit_{size}_patch16_siglip_{image_size}.v2_webli"
    fields = {"pooling": "map", "activation": "gelu_tanh"}
    return _timm(variant, f"siglip2_{image_size}", name, image_size, **fields)


HUB_CHECKPOINTS = (
    *_dinov2("ViT_S14", "small", 81.1, 80.9),
    *_dinov2("ViT_B14", "base", 84.5, 84.6),
    *_dinov2("ViT_L14", "large", 86.3, 86.7),
    *_dinov2("ViT_giant14", "giant", 86.5, 87.1),
    _dinov3("ViT_S16", "vits16"),
    _dinov3("ViT_Splus16", "vits16plus", activation="silu"),
    _dinov3("ViT_B16", "vitb16"),
    _dinov3("ViT_L16", "vitl16"),
    _dinov3("ViT_L16", "vitl16", "dinov3_satellite", "sat493m"),
    _dinov3("ViT_Hplus16", "vith16plus", activation="silu"),
    _dinov3("ViT_7B16", "vit7b16", activation="silu"),
    _dinov3("ViT_7B16", "vit7b16", "dinov3_satellite", "sat493m", "silu"),
    _deit("ViT_Ti16", "tiny", 224, 74.5),
    _deit("ViT_S16", "small", 224, 81.2),
    _deit("ViT_B16", "base", 224, 83.4),
    _deit("ViT_B16", "base", 384, 85.2),
    _mae("ViT_B16", "vit_base_patch16_224"),
    _mae("ViT_L16", "vit_large_patch16_224"),
    _mae("ViT_H14", "vit_huge_patch14_224"),
    # This branch contains a .safetensors file; the main branch contains only pickled weights.
    Checkpoint(
        *("ViT_S16", "msn", "hf://facebook/vit-msn-small@refs/pr/5", 224, 0),
        activation="gelu",
        license="apache-2.0",
        source=f"{TRANSFORMERS}, arXiv 2204.07141",
    ),
    Checkpoint(
        *("ViT_L14", "clip", "hf://openai/clip-vit-large-patch14", 224, 0),
        activation="quick_gelu",
        source=f"{TRANSFORMERS}, arXiv 2103.00020",
    ),
    Checkpoint(
        *("ViT_B16", "siglip2_naflex", "hf://google/siglip2-base-patch16-naflex", 256, 0),
        pooling="map",
        license="apache-2.0",
        source=f"{TRANSFORMERS}, arXiv 2502.14786",
    ),
    _siglip2("ViT_So400m16", "so400m", 256),
    _siglip2("ViT_So400m16", "so400m", 384),
    _siglip2("ViT_So400m16", "so400m", 512),
    _siglip2("ViT_giantopt16", "giantopt", 256),
    _siglip2("ViT_giantopt16", "giantopt", 384),
)


def _torchvision(variant, weights, file, image_size, accuracy, resized=None):
    """Return the row of a file that torchvision or SWAG (arXiv 2201.08371) trained.

    `resized` is the length of the smaller side of an image before the crop; `None` for no crop of
    this side.
    """
    is_swag = weights.startswith("swag")
    images = dataclasses.replace(
        TORCHVISION.image_spec,
        interpolation="bicubic" if is_swag else "bilinear",
        crop_share=image_size / (resized or image_size),
    )
    return Checkpoint(
        *(variant, f"torchvision_{weights}", f"https://download.pytorch.org/models/{file}.pth"),
        image_size=image_size,
        num_classes=1000,
        activation="gelu",
        accuracy=accuracy,
        source=TORCHVISION_VIT,
        license="cc-by-nc-4.0" if is_swag else "",
        image_spec=images,
    )


TORCHVISION_CHECKPOINTS = (
    _torchvision("ViT_B16", "v1", "vit_b_16-c867db91", 224, 81.072, 256),
    _torchvision("ViT_B16", "swag_e2e", "vit_b_16_swag-9ac1b537", 384, 85.304),
    _torchvision("ViT_B16", "swag_linear", "vit_b_16_lc_swag-4e70ced5", 224, 81.886),
    _torchvision("ViT_B32", "v1", "vit_b_32-d86f8d99", 224, 75.912, 256),
    _torchvision("ViT_L16", "v1", "vit_l_16-852ce7e3", 224, 79.662, 242),
    _torchvision("ViT_L16", "swag_e2e", "vit_l_16_swag-4f3808c9", 512, 88.064),
    _torchvision("ViT_L16", "swag_linear", "vit_l_16_lc_swag-4d563306", 224, 85.146),
    _torchvision("ViT_L32", "v1", "vit_l_32-c7638314", 224, 76.972, 256),
    _torchvision("ViT_H14", "swag_e2e", "vit_h_14_swag-80465313", 518, 88.552),
    _torchvision("ViT_H14", "swag_linear", "vit_h_14_lc_swag-c1eb923e", 224, 85.708),
)
