"""The backend of torch.compile on torch's own operator database: the command of `tests/tools/op_db.py`, in parts."""

import logging

import pytest

from mlhood.compiler.torch_compile.decompositions import registry
from tests.tools import op_db

# torch's own, of samples that it refuses or does not recommend
pytestmark = pytest.mark.filterwarnings("ignore")
PARTS = 24


@pytest.fixture(autouse=True)
def quiet():
    """Keep torch from writing its traces to pytest's log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def differing(ops, dtypes, count):
    return [f"{label}: {text}" for label, found in op_db.compare(ops, dtypes, count) for text in found]


@pytest.mark.parametrize("part", range(2))
def test_some_operators_give_what_torch_gives(part):
    found = differing(op_db.op_db[part::PARTS], ["float32"], 1)
    assert found == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", op_db.DTYPES)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_gives_what_torch_gives(part, dtype):
    found = differing(op_db.op_db[part::PARTS], [dtype], 1)
    assert found == []


def test_a_wrong_translation_is_seen(monkeypatch):
    monkeypatch.setitem(registry().functions, "aten::neg", registry().functions["aten::abs"])
    assert differing([op for op in op_db.op_db if op.name == "neg"], ["float32"], 1)
