"""The cycle model: cases counted by hand, and what holds for every program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, layer_program
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, misfits
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.isa.computations import Rescale
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Load, Store, Units, Wait
from mlhood.compiler.backends.nmp.machine import Dram, default_machine
from mlhood.compiler.backends.nmp.nmp_figures import blocks, timeline
from mlhood.compiler.backends.nmp.program import NmpLayer, NmpProgram
from mlhood.compiler.backends.nmp.stages import NmpStage
from mlhood.dataflow.systolic import Array, Product, count
from mlhood.plotting.alt_text import alt_text

# a burst of 8 bytes takes 10 cycles, and its bytes arrive 5 later; 4 lanes; 1 cycle to issue, 2 for a barrier
MACHINE = replace(
    default_machine(),
    name="counted",
    tiles=1,
    tilelets=2,
    macs_per_cycle=4,
    barrier_cycles=2,
    dram=Dram(2**20, 8, 10, 5),
)
A, B, BOTH = Units((0,), (0,)), Units((0,), (1,)), Units((0,), (0, 1))


def work(units: Units, count: int, x: int = 0) -> Rescale:
    return Rescale(units, x, 8192, 1, count, 0, -128, 127)


def cycles(*instructions) -> int:
    program = NmpProgram("counted", MACHINE, {}, instructions, (NmpLayer("all", 0, len(instructions)),))
    return time_program(program).cycles


def test_load_compute_store_one_after_another():
    # load issued at 1, bursts 1-21, complete at 26; wait till 26; 1 + 4 cycles: 31; store issued at 32: 32-52, 57
    # the barrier is issued at 33, and ends 2 after the store's completion
    serial = (Load(A, 0, 0, 16), Wait(A), work(A, 16), Store(A, 8192, 64, 16), Barrier())
    assert cycles(*serial) == 59


def test_a_transfer_beside_a_computation_costs_nothing():
    # the second load is issued at 2 and served at 21-41, while the tilelet waits for the first only, till 26
    # it computes 26 + 1 + 25 = 52, waits (53), and computes 1 + 4 = 58
    both = (Load(A, 0, 0, 16), Load(A, 64, 16, 16), Wait(A, 1), work(A, 100), Wait(A), work(A, 16, 64))
    assert cycles(*both) == 58


def test_one_load_for_two_tilelets_is_transferred_once():
    shared = (Load(BOTH, 0, 0, 16), Wait(BOTH), work(BOTH, 16))
    each = (Load(A, 0, 0, 16), Load(B, 0, 0, 16), Wait(BOTH), work(BOTH, 16))
    assert cycles(*shared) == 31
    assert cycles(*each) == 51  # the second one waits for 20 cycles of the first


def test_runs_pay_for_the_bursts_that_they_touch():
    assert Load(A, 0, 6, 4).bursts(8) == 2  # bytes 6 to 9
    assert Load(A, 0, 6, 2).bursts(8) == 1
    assert Load(A, 0, 0, 4, columns=3, column_stride=6).bursts(8) == 1 + 2 + 1  # from 0, 6 and 12


def test_a_barrier_waits_for_the_last_tilelet():
    assert cycles(work(A, 400), work(B, 4), Barrier()) == 101 + 1 + 2


@st.composite
def convolutions(draw):
    small = st.integers(1, 12)
    kernel = draw(st.sampled_from([1, 3]))
    stage = convolution(draw(small), draw(st.integers(3, 12)), draw(st.integers(3, 12)), draw(small), kernel=kernel)
    cut = [draw(st.integers(1, n)) for n in (stage.out_height, stage.out_width, stage.filters, stage.channels)]
    order, double = draw(st.sampled_from(ORDERS)), draw(st.booleans())
    groups = draw(st.sampled_from([(1, 1), (2, 2), (1, 4), (4, 8)]))
    return stage, Slicing(*cut, order, *groups, double)


@settings(max_examples=40)
@given(convolutions())
def test_what_holds_for_every_program(case):
    stage, slicing = case
    machine = default_machine()
    if misfits((stage,), slicing, machine):
        return
    program = layer_program((stage,), slicing, machine)
    timing = time_program(program)
    (layer,) = timing.layers
    assert layer.macs == stage.macs
    assert layer.dma_cycles == layer.burst_bytes // machine.dram.burst_bytes * machine.dram.burst_cycles
    assert timing.cycles >= layer.dma_cycles
    assert timing.cycles * machine.units * machine.lanes(1) >= layer.macs
    assert 0 <= layer.utilisation <= 1
    assert 0 <= layer.idle <= 1
    assert layer.bytes <= layer.burst_bytes
    faster = replace(machine, dram=replace(machine.dram, burst_cycles=machine.dram.burst_cycles // 2))
    assert time_program(replace(program, machine=faster)).cycles <= timing.cycles
    slower = replace(machine, issue_cycles=machine.issue_cycles + 3)
    assert time_program(replace(program, machine=slower)).cycles >= timing.cycles


@pytest.mark.parametrize(("m", "k", "n"), [(1, 40, 16), (5, 33, 7), (12, 64, 40)])
def test_a_product_takes_the_systolic_arrays_cycles_without_filling_and_draining(m, k, n):
    lanes = 16
    machine = replace(default_machine(), tiles=1, tilelets=1, issue_cycles=0, blob_bytes=2**20)
    stage = NmpStage("dense", 1, k, m, 1, n, m, 1, low=-128, high=127)
    timing = time_program(layer_program((stage,), Slicing(m, 1, n, k), machine))
    counted = count(Product("product", m, n, k), Array(1, lanes, "os"))
    folds = m * -(-n // lanes)
    assert counted.folds == folds
    assert timing.layers[0].compute_cycles == folds * k
    assert counted.cycles - folds * k == folds * (counted.cycles // folds - k)  # the same for every fold
    assert counted.cycles > folds * k


@pytest.fixture
def timing():
    stage = convolution(8, 12, 12, 16, pad=1)
    return time_program(layer_program((stage,), Slicing(3, 12, 8, 8, "output", 1, 2, True), default_machine()))


def test_layers_add_up(timing):
    assert timing.cycles == sum(layer.cycles for layer in timing.layers)
    assert timing.energy.keys() == {"mac", "idle", "blob", "dram"}
    assert list(timing.table().cycles) == [layer.cycles for layer in timing.layers]


def test_figures_say_what_they_show(timing):
    assert f"{timing.cycles:,} cycles" in alt_text(timeline(timing))
    assert "4 tiles of 8 tilelets" in alt_text(blocks(default_machine()))


def test_an_empty_program_takes_no_time():
    timing = time_program(NmpProgram("empty", MACHINE, {}, (), ()))
    assert timing.cycles == 0
    assert np.array_equal(timing.offsets, [0])
