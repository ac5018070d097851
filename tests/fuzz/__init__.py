"""Untrusted files and addresses are read, or refused with a clear error.

`nox -s fuzz` tries `FUZZ_CASES` of them (10,000); what was found once is kept as an `example`.
"""

import pytest

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.backends("tensorflow", reason="the readers are the same on every backend"),
]
