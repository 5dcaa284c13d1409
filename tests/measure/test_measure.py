"""The door of the room: light to open, and everything behind it."""

import subprocess
import sys

import pytest

from mlhood import measure

LOADED = "import sys, mlhood.measure; print({'numpy', 'pandas', 'matplotlib', 'threadpoolctl'} & set(sys.modules))"


def test_the_machines_facts_load_no_library():
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("name", measure.__all__)
def test_every_name_is_there_however_it_is_asked_for(name):
    first = getattr(measure, name)
    assert callable(first)
    assert getattr(measure, name) is first


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'guess'"):
        _ = measure.guess
