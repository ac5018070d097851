"""Files and addresses that nobody should trust: each is read, or refused by an error in words.

`make fuzz` tries `FUZZ_CASES` of them (10,000); what was found once is kept as an `example`.
"""

import pytest

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.backends("tensorflow", reason="the readers are the same on every backend"),
]
