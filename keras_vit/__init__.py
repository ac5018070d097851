"""Vision Transformers for Keras 3.

The models of "An Image is Worth 16x16 Words" (arXiv 2010.11929), exact to the original, on the
TensorFlow, JAX and torch backends of Keras.
"""

import lazy_loader
import wrapt

from keras_vit.version import __version__ as __version__

# `__init__.pyi` lists the public names. They are imported at their first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Classes and functions of saved models, by module. `import keras_vit` registers them with Keras.
SAVED_NAMES = {
    "keras_vit.layers": """
        AddPositionEmbedding AddPositionEmbedding2D AddSincosPositionEmbedding
        AxialTransformerBlock BottleneckUnit ClassToken ClassTokenAndMeanPooling ClassTokenPooling
        CorruptPatches DistilledHead LayerScale MlpBlock MultiHeadAttention
        MultiHeadAttentionPooling PatchEmbedding PreActivationBottleneckUnit RegisterTokens
        StandardizedConv2D TransformerBlock
    """,
    "keras_vit.layers.layer": "Dense",
    "keras_vit.layers.mlp": "gelu_tanh quick_gelu",
    "keras_vit.layers.normalization": "GroupNorm",
    "keras_vit.layers.bottleneck": "MaxPool",
    "keras_vit.models.dense": "MaskProduct ResizeLike TokensToMap",
    "keras_vit.models.image_model": "ImageModel",
    "keras_vit.training.losses": "BalancedAccuracy PixelCrossEntropy sigmoid_cross_entropy",
    "keras_vit.training.optimizers": "AdamW ReciprocalSquareRootDecay SGD WarmUp",
}


@wrapt.when_imported("keras")
def _register(keras):
    # Lazy imports, since a module of this package may be importing Keras at this moment.
    objects = keras.saving.get_custom_objects()
    for module, names in SAVED_NAMES.items():
        for name in names.split():
            objects.setdefault(f"keras_vit>{name}", wrapt.lazy_import(module, name))
