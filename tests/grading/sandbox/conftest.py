from __future__ import annotations

import pytest

from mlhood.grading.sandbox.bubblewrap import problem


@pytest.fixture
def bubblewrap():
    if reason := problem():
        pytest.skip(f"no sandbox on this machine: {reason}")
