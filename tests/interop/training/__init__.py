"""Training compared with that of the original: `nox -s interop`."""

import pytest

pytestmark = pytest.mark.interop
