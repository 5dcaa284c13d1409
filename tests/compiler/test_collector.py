"""The collector is off while a graph is built, and afterwards as it was, whatever happens."""

import gc

import pytest

from mlhood.compiler.collector import collector_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_put_back_as_it_was(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with collector_paused():
            assert not gc.isenabled()
            with collector_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_an_error_puts_it_back_too():
    with pytest.raises(ValueError, match="inside"), collector_paused():
        raise ValueError("inside")
    assert gc.isenabled()
