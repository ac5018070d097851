"""The public names, for type checkers; written by `make docs`."""

from keras_vit.data.datasets import find_source as find_source
from keras_vit.data.datasets import load as load
from keras_vit.data.deduplication.groups import find_groups as find_groups
from keras_vit.data.deduplication.pairs import find_duplicates as find_duplicates
from keras_vit.data.deduplication.parts import HashParts as HashParts
from keras_vit.data.exclusion import write_ids as write_ids
from keras_vit.data.images.augmentations import AUGMENTATIONS as AUGMENTATIONS
from keras_vit.data.images.augmentations import Augmentation as Augmentation
from keras_vit.data.images.preprocessing import Preprocessing as Preprocessing
from keras_vit.data.images.scaling import preprocess as preprocess
from keras_vit.data.images.transforms import hyper_rule_sizes as hyper_rule_sizes
from keras_vit.data.info import DatasetInfo as DatasetInfo
from keras_vit.data.labels import decode_predictions as decode_predictions
from keras_vit.data.masked_patches import mask_patches as mask_patches
from keras_vit.data.sources.paper import DATASETS as DATASETS
from keras_vit.data.sources.records.writer import write_records as write_records
