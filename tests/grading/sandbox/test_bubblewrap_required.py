from __future__ import annotations

import sys

import pytest

from mlhood.errors import GradingError
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.kernel import SandboxPool


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap needs Linux")
def test_without_bubblewrap_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GradingError) as caught:
        SandboxPool()
    assert "was not found" in caught.value.parts["got"]
    assert "apt-get install bubblewrap" in caught.value.parts["what to do"]
    assert "--no-sandbox, which runs every submission with your own rights" in caught.value.parts["what to do"]


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(GradingError) as caught:
        require()
    assert "WSL 2" in caught.value.parts["what to do"]
