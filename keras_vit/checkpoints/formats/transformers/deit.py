"""The layout of DeiT in transformers, a ViT with a distillation token."""

from keras_vit.checkpoints.architecture import output_size
from keras_vit.checkpoints.formats.transformers.common import Defaults, transformers_format
from keras_vit.checkpoints.formats.transformers.vit import (
    HUGGINGFACE_ROWS,
    PATCHES,
    describe_vit,
    name_in_files,
    prefixer,
    vit_settings,
)
from keras_vit.checkpoints.weight_map import Row, finder, torch_layer

TOKEN = "embeddings.distillation_token"
CLASSIFIERS = ("classifier.", "cls_classifier.", "distillation_classifier.")
DEIT = Defaults(("deit",), epsilon=1e-12)

# Models without a second classifier do not use the output of the distillation token: the token is
# then read as a register token.
DEIT_ROWS = (
    *HUGGINGFACE_ROWS,
    Row(TOKEN, "distillation_token/token"),
    Row(TOKEN, "register_tokens/tokens"),
    *torch_layer("cls_classifier.", "head/class_token"),
    *torch_layer("distillation_classifier.", "head/distillation_token"),
)


def _describe(shape_of, config, num_heads):
    classes = output_size(shape_of, "head/class_token", axis=0)
    fields = {"num_registers": 1}
    if classes:
        fields = {"distillation_token": True, "num_classes": classes}
    return describe_vit(shape_of, config, num_heads, DEIT, **fields)


def _config_of(options):
    architecture = "DeiTModel"
    if options.num_classes:
        architecture = "DeiTForImageClassification"
        architecture += "WithTeacher" if options.distillation_token else ""
    return architecture, "deit", vit_settings(options)


HUGGINGFACE_DEIT = transformers_format(
    "huggingface_deit",
    DEIT_ROWS,
    "`huggingface_deit`: `.safetensors` of DeiT, all but the classifiers under `deit.`",
    finder([PATCHES, TOKEN], ("deit.", ""), ignored="embeddings.mask_token$", rename=name_in_files),
    _describe,
    DEIT,
    _config_of,
    models=("DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"),
    interpolation="cubic",
    written_name=prefixer("deit.", *CLASSIFIERS),
)
