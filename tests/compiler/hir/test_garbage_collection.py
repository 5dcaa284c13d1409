"""The garbage collector is disabled while a graph is built, and its previous state is restored, also after an error."""

import gc

import pytest

from mlhood.compiler.hir.names import gc_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_the_previous_state_is_restored(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with gc_paused():
            assert not gc.isenabled()
            with gc_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_an_error_restores_it_too():
    with pytest.raises(ValueError, match="inside"), gc_paused():
        raise ValueError("inside")
    assert gc.isenabled()
