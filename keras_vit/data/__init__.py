"""Datasets and images, on `tf.data`."""

from keras_vit.core.lazy import make_lazy

# Most of the files import Keras and TensorFlow.
__all__ = make_lazy(
    __name__,
    {
        "keras_vit.data.datasets": ["find_source", "load"],
        "keras_vit.data.deduplication.groups": ["find_groups"],
        "keras_vit.data.deduplication.pairs": ["find_duplicates"],
        "keras_vit.data.deduplication.parts": ["HashParts"],
        "keras_vit.data.exclusion": ["write_ids"],
        "keras_vit.data.images.augmentations": ["AUGMENTATIONS", "Augmentation"],
        "keras_vit.data.images.preprocessing": ["Preprocessing"],
        "keras_vit.data.images.scaling": ["preprocess"],
        "keras_vit.data.images.transforms": ["hyper_rule_sizes"],
        "keras_vit.data.info": ["DatasetInfo"],
        "keras_vit.data.labels": ["decode_predictions"],
        "keras_vit.data.masked_patches": ["mask_patches"],
        "keras_vit.data.sources.paper": ["DATASETS"],
        "keras_vit.data.sources.records.writer": ["write_records"],
    },
)
