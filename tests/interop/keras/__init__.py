"""Tests against the real keras-hub and vit-keras: `make test-interop`."""

import pytest

pytestmark = pytest.mark.interop
