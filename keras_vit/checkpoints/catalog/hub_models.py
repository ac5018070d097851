"""Published checkpoints in repositories of the Hugging Face Hub.

Names, sizes and licenses of timm's repositories are those of its `default_cfgs`, with which
`make test-interop` compares them.
"""

from keras_vit.checkpoints.catalog.published import Checkpoint

DINOV2_README = "facebookresearch/dinov2 README.md"
DEIT_README = "facebookresearch/deit README_deit.md"
DINOV3_README = "facebookresearch/dinov3 README.md"
TIMM = "huggingface/pytorch-image-models"
TRANSFORMERS = "huggingface/transformers docs"


def _timm(variant, tag, name, image_size, license="apache-2.0", source=TIMM, **facts):
    """Return the row of a repository of timm."""
    facts = {"num_classes": 0, "activation": "gelu", **facts}
    url = f"hf://timm/{name}"
    return Checkpoint(variant, tag, url, image_size, license=license, source=source, **facts)


def _dinov2(variant, size, linear_accuracy, linear_accuracy_with_registers):
    """Yield the rows of DINOv2 (arXiv 2304.07193), without and with registers (2309.16588)."""
    activation = "silu" if size == "giant" else "gelu"
    for tag, name, accuracy in (
        ("dinov2", f"vit_{size}_patch14_dinov2.lvd142m", linear_accuracy),
        ("dinov2_reg4", f"vit_{size}_patch14_reg4_dinov2.lvd142m", linear_accuracy_with_registers),
    ):
        facts = {"activation": activation, "linear_accuracy": accuracy, "source": DINOV2_README}
        yield _timm(variant, tag, name, 518, **facts)


def _dinov3(variant, name, tag="dinov3", data="lvd1689m", activation="gelu"):
    """Return a row of DINOv3 (arXiv 2508.10104); its repositories are gated."""
    url = f"hf://facebook/dinov3-{name}-pretrain-{data}"
    facts = {"activation": activation, "license": "dinov3-license", "source": DINOV3_README}
    return Checkpoint(variant, tag, url, 224, 0, position_embedding="rotary", **facts)


def _deit(variant, size, image_size, accuracy):
    """Return a row of DeiT with a distillation token (arXiv 2012.12877)."""
    tag = "deit_distilled" if image_size == 224 else f"deit_distilled_{image_size}"
    name = f"deit_{size}_distilled_patch16_{image_size}.fb_in1k"
    facts = {"num_classes": 1000, "accuracy": accuracy, "source": DEIT_README}
    return _timm(variant, tag, name, image_size, **facts)


def _mae(variant, name):
    """Return the row of an encoder of MAE (arXiv 2111.06377)."""
    return _timm(variant, "mae", f"{name}.mae", 224, "cc-by-nc-4.0")


def _siglip2(variant, size, image_size):
    """Return a row of SigLIP 2 (arXiv 2502.14786), whose layout of timm has the tanh GELU."""
    name = f"vit_{size}_patch16_siglip_{image_size}.v2_webli"
    facts = {"pooling": "map", "activation": "gelu_tanh"}
    return _timm(variant, f"siglip2_{image_size}", name, image_size, **facts)


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
    # The branch has the weights as .safetensors, the main one has pickled weights.
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
