"""The public names, for type checkers."""

from .datasets import find_source as find_source
from .datasets import load as load
from .deduplication.copies import find_duplicates as find_duplicates
from .deduplication.copies import find_groups as find_groups
from .deduplication.hashes import HashParts as HashParts
from .exclusion import write_ids as write_ids
from .images.preprocessing import AUGMENTATIONS as AUGMENTATIONS
from .images.preprocessing import Augmentation as Augmentation
from .images.preprocessing import Preprocessing as Preprocessing
from .images.scaling import preprocess as preprocess
from .images.transforms import hyper_rule_sizes as hyper_rule_sizes
from .info import DatasetInfo as DatasetInfo
from .labels import decode_predictions as decode_predictions
from .masked_patches import mask_patches as mask_patches
from .sources.paper import DATASETS as DATASETS
from .sources.records import write_records as write_records
