"""One convolution on one tilelet: its time and its traffic follow from the formulas of the module."""

from dataclasses import replace

import numpy as np
import pytest

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program, first_misfit
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.backends.nmp.simulator import simulate
from mlhood.errors import CompilerError

SERIAL = replace(default_machine(), name="1x1", tiles=1, tilelets=1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("rows", "filters"), [(4, 8), (8, 8), (4, 16)])
def test_cycles_and_bytes_of_the_orders_are_closed_forms(order, rows, filters):
    # a run of a slice is rows x 32 bytes, whole bursts; a slice of weights filters x (4 + 28) bytes
    layer = convolution(28, 16, 32, 64, kernel=1)
    pixels, groups = 16 // rows, 64 // filters
    loads = {
        "output": (pixels, pixels * groups),
        "weight": (pixels * groups, groups),
        "input": (pixels, pixels * groups),
    }
    x, w, y = 28 * rows * 32, filters * 32, filters * rows * 32
    steps = pixels * groups
    moved = loads[order][0] * x + loads[order][1] * w + steps * y
    compute = steps * 28 * min(rows * 32 * -(-filters // 16), filters * -(-rows * 32 // 16))
    dram, issue = SERIAL.dram, SERIAL.issue_cycles
    cycles = steps * (2 * issue + dram.latency_cycles) + moved // dram.burst_bytes * dram.burst_cycles + compute
    cycles += issue + dram.latency_cycles + SERIAL.barrier_cycles
    timing = time_program(convolution_program(layer, Slicing(rows, 32, filters, 28, order), SERIAL))
    assert timing.bytes == moved
    assert timing.cycles == cycles


def test_arrays_are_used():
    rng = np.random.default_rng(0)
    layer = convolution(3, 6, 6, 4, kernel=1)
    weights, bias = rng.integers(-128, 128, (4, 3, 1, 1)).astype(np.int8), np.arange(4, dtype=np.int32) * 1000
    x = rng.integers(-128, 128, (3, 6, 6)).astype(np.int8)
    program = convolution_program(layer, Slicing(2, 6, 2, 2), SERIAL, weights, bias)
    sums = np.einsum("fc,chw->fhw", weights[:, :, 0, 0].astype(int), x.astype(int)) + bias[:, None, None]
    np.testing.assert_array_equal(simulate(program, {"x": x})["y"], np.clip((sums + 128) >> 8, -128, 127))


def test_what_does_not_fit_is_told_with_its_bytes():
    layer = convolution(28, 16, 32, 64, kernel=1)
    assert first_misfit(layer, Slicing(4, 32, 8, 28), SERIAL) is None
    assert first_misfit(layer, Slicing(16, 32, 8, 28), SERIAL) == ("input", 28 * 16 * 32, 8192)
    assert first_misfit(layer, Slicing(4, 32, 8, 28, double_buffered=True), SERIAL) is None
    halved = Slicing(8, 32, 8, 28, double_buffered=True)
    assert first_misfit(layer, halved, SERIAL) == ("input", 28 * 8 * 32, 4096)


def test_invalid_sizes_and_arrays_are_refused():
    with pytest.raises(CompilerError, match="invalid convolution"):
        convolution(0, 4, 4, 4)
    with pytest.raises(CompilerError, match="window is larger"):
        convolution(1, 2, 2, 4, kernel=3)
    layer = convolution(3, 6, 6, 4, kernel=1)
    with pytest.raises(CompilerError, match="invalid weights"):
        convolution_program(layer, Slicing(6, 6, 4, 3), SERIAL, np.zeros((4, 3), np.int8))
    with pytest.raises(CompilerError, match="invalid bias"):
        convolution_program(layer, Slicing(6, 6, 4, 3), SERIAL, bias=np.zeros(4, np.int8))
