"""Runs on few and uneven images: balance of classes, early stopping, frozen backbones."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit.data import load
from keras_vit.data.features import compute_features
from keras_vit.models.files import load_model
from keras_vit.models.prediction import feature_extractor
from keras_vit.training.callbacks.stopping import StopEarly, find_best
from keras_vit.training.fit import fit
from keras_vit.training.job import train
from keras_vit.training.tasks import make_task
from keras_vit.training.training_data import load_training_data
from tests.fixtures.contract import to_numpy
from tests.fixtures.images import write_folder
from tests.fixtures.small_runs import small_data, small_fit, small_model, small_recipe

LOSSES = [2.0, 1.0, float("nan"), 1.5, 1.0, 3.0]


def uneven_folder(path, counts=(12, 4, 3)):
    for index, count in enumerate(counts):
        write_folder(path, {f"train/{name}": count for name in [f"class_{index}"]})
        write_folder(path, {f"validation/class_{index}": 3})
    return path
