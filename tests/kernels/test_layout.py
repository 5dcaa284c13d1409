"""Changes of the layout of activations against their definitions in NumPy."""

import numpy as np
import pytest

from mlhood.errors import KernelError
from mlhood.kernels import geometry, layout
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64
from tests.kernels import quantized
from tests.kernels.guards import run_guarded

SHAPES = [
    (1, 8, 4, 8),
    (1, 3, 9, 7),
    (2, 1, 5, 5),
    (2, 17, 3, 3),
    (1, 40, 7, 7),
    (3, 16, 1, 1),
    (2, 1001, 1, 1),
    (1, 5, 1, 2),
    (1, 16, 61, 67),
    (1, 70, 1, 3),
    (0, 8, 2, 2),
    (2, 0, 2, 2),
    (1, 8, 0, 5),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts_are_changed_as_defined(shape, target):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    blocked = geometry.to_blocked(x, target.lanes)
    y = run_guarded(layout.prepare(shape, "to_blocked", target), blocked.shape, x=x)
    np.testing.assert_array_equal(y, blocked)
    # what is in the lanes beyond the channels must not matter
    beyond = np.arange(blocked.shape[1] * target.lanes).reshape(-1, 1, 1, target.lanes) >= shape[1]
    blocked[:, np.broadcast_to(beyond, blocked.shape[1:])] = np.nan
    np.testing.assert_array_equal(run_guarded(layout.prepare(shape, "to_plain", target), shape, x=blocked), x)


def test_only_images_have_layouts():
    with pytest.raises(KernelError, match="layouts"):
        layout.prepare((3, 4, 5), "to_blocked")


@pytest.mark.parametrize("direction", ["to_blocked", "to_plain"])
def test_transpositions_for_arm_stay_in_registers(direction):
    text = jit.compile_ir(layout.build(AARCH64, direction), AARCH64, assembly=True)
    assert text.count("\tzip") + text.count("\ttrn") + text.count("\tuzp") >= 8


# -- bytes


@pytest.mark.parametrize("shape", [(2, 37, 5, 7), (1, 16, 4, 8), (1, 3, 1, 1), (3, 32, 2, 3)])
def test_bytes_are_converted_and_back(target, shape):
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    blocked = geometry.to_blocked(x, 16)
    call = layout.prepare_bytes(shape, to_blocked=True, target=target)
    out = quantized.run_guarded(call, 2, {"x": x}, blocked)
    assert np.array_equal(geometry.to_plain(out, shape[1]), x)
    call = layout.prepare_bytes(shape, to_blocked=False, target=target)
    assert np.array_equal(quantized.run_guarded(call, 2, {"x": blocked}, x), x)
