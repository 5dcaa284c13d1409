"""The facade of the package: quick to import, with every name in it."""

import subprocess
import sys

import pytest

from mlhood import measure

PRINT_IMPORTED = (
    "import sys, mlhood.measure; print({'numpy', 'pandas', 'matplotlib', 'threadpoolctl'} & set(sys.modules))"
)


def test_the_machines_facts_import_no_library():
    result = subprocess.run([sys.executable, "-c", PRINT_IMPORTED], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize("name", measure.__all__)
def test_every_name_is_exported(name):
    first = getattr(measure, name)
    assert callable(first)
    assert getattr(measure, name) is first
