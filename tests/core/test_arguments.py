"""Errors of arguments."""

import pytest

from keras_vit.core.arguments import check_options


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    with pytest.raises(TypeError, match="the nearest one is `num_classes`. Received: num_clases=3"):
        check_options("ViT_Ti16", {"num_clases": 3}, ("num_classes", "image_size", "dropout"))
