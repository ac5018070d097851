"""Tests against the real transformers, timm and keras-hub: `make test-interop`."""

import pytest

pytestmark = pytest.mark.interop
