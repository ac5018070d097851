"""The rows of the catalog for timm's repositories, against timm's own table."""

import pytest
import torch

from keras_vit.checkpoints.catalog.published import HUB_CHECKPOINTS
from keras_vit.models import find_variant
from tests.interop.test_timm_architectures import Hub, accepted_options

PREFIX = "hf://timm/"
ROWS = [row for row in HUB_CHECKPOINTS if row.url.startswith(PREFIX)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_of_timm(row, timm):
    name = row.url.removeprefix(PREFIX)
    config = timm.get_pretrained_cfg(name)
    assert config.hf_hub_id == f"timm/{name}"
    assert (config.license, config.num_classes) == (row.license, row.num_classes)
    assert tuple(config.input_size[1:]) == (row.image_size, row.image_size)
    with torch.device("meta"):
        model = timm.create_model(config.architecture, num_classes=row.num_classes)
    options = accepted_options(Hub(config.architecture, model))
    assert options.sizes == find_variant(row.variant).sizes
    assert (options.activation, options.pooling) == (row.activation, row.pooling)
