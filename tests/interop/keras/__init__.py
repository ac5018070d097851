"""Tests against the real keras-hub and vit-keras: `nox -s interop`."""

import pytest

pytestmark = pytest.mark.interop
