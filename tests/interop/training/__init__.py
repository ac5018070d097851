"""Training compared with that of the original: `make test-interop`."""

import pytest

pytestmark = pytest.mark.interop
