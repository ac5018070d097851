"""Build the models of other packages that the benchmarks compare with, with random weights.

A peer has the methods `predict_on_batch(images)` and `train_on_batch(images, labels)`.
"""

import pathlib
import sys


def keras_hub_vit(image_size):
    """Return ViT-B/16 of keras-hub, with the erf GELU."""
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(image_size, image_size, 3),
        patch_size=16,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        mlp_dim=3072,
    )
    return compiled(
        keras_hub.models.ViTImageClassifier(
            backbone=backbone, num_classes=1000, pooling="token", head_dtype="float32"
        )
    )


def vit_keras_vit(image_size):
    """Return ViT-B/16 of vit-keras, with the erf GELU."""
    import keras
    from vit_keras import vit

    features = vit.vit_b16(
        image_size=image_size, pretrained=False, include_top=False, pretrained_top=False
    )
    logits = keras.layers.Dense(1000, dtype="float32")(features.output)
    return compiled(keras.Model(features.input, logits))


def zeromodels_vit(image_size):
    """Return ViT-B/16 of ZeroModels, with the erf GELU."""
    from zeromodels.models.vit import ViTImageClassify

    return compiled(ViTImageClassify(image_size=image_size, num_classes=1000))


def transformers_vit(image_size):
    """Return ViT-B/16 of transformers, in torch, with the erf GELU."""
    check_torch()
    from transformers import ViTConfig, ViTForImageClassification

    return TorchModel(
        ViTForImageClassification(ViTConfig(image_size=image_size, num_labels=1000)),
        logits_of=lambda outputs: outputs.logits,
    )


def keras_hub_resnet(image_size):
    """Return ResNet-50-v2 of keras-hub, with BatchNorm and without standardized kernels."""
    import keras_hub

    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 128, 256, 512],
        stackwise_num_blocks=[3, 4, 6, 3],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="bottleneck_block",
        use_pre_activation=True,
        image_shape=(image_size, image_size, 3),
    )
    return compiled(
        keras_hub.models.ResNetImageClassifier(
            backbone=backbone, num_classes=1000, head_dtype="float32"
        )
    )


def timm_model(name):
    """Return a function that builds a model of timm, in torch."""

    def make(image_size):
        check_torch()
        options = {} if name.startswith("resnet") else {"img_size": image_size}
        return TorchModel(timm_module(name, **options))

    return make


def check_torch():
    """Raise `ImportError` unless Keras runs on torch, because the peer is a torch module."""
    import keras

    if keras.backend.backend() != "torch":
        raise ImportError("it is measured against Keras on torch")


def timm_module(name, **options):
    """Return a torch module of timm."""
    # timm imports torchvision, which has no build for CPUs only.
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
    from tests.fixtures.peers.timm_alone import import_timm

    return import_timm().create_model(name, num_classes=1000, **options)


def compiled(model):
    """Return the Keras model, compiled for training."""
    import keras

    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class TorchModel:
    """A torch module with the methods of a Keras model; half precision is `torch.autocast`.

    Args:
        module: the module.
        logits_of: function of the module's outputs.
    """

    def __init__(self, module, logits_of=lambda outputs: outputs):
        import keras
        import torch

        self.module, self.logits_of = module, logits_of
        self.dtype = getattr(torch, keras.config.dtype_policy().compute_dtype)
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def predict_on_batch(self, images):
        import torch

        self.module.eval()
        with torch.no_grad():
            return self._logits(images).numpy()

    def train_on_batch(self, images, labels):
        import torch

        self.module.train()
        self.optimizer.zero_grad()
        logits = self._logits(images)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _logits(self, images):
        import torch

        inputs = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            return self.logits_of(self.module(inputs)).float()


PEERS = {
    "ViT_B16": {
        "keras-hub": keras_hub_vit,
        "vit-keras": vit_keras_vit,
        "ZeroModels": zeromodels_vit,
        "transformers": transformers_vit,
        "timm": timm_model("vit_base_patch16_224"),
    },
    "R50_B16": {"timm": timm_model("vit_base_r50_s16_224")},
    "BiT_R50x1": {
        "keras-hub (BatchNorm)": keras_hub_resnet,
        "timm": timm_model("resnetv2_50x1_bit"),
    },
}
