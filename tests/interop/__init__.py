"""Tests against the real transformers, timm and keras-hub: `nox -s interop`."""

import pytest

pytestmark = pytest.mark.interop
