"""The checks of P3 in this process: what they compare with, and what they say of tables, refusals and nonsense."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from mlhood.grading.checks import timing
from mlhood.grading.checks.submission import LocalTransport
from mlhood.grading.projects.p3 import P3, races, reference
from mlhood.grading.projects.p3.probes import packed
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure import Measurement
from tests.grading.projects.p3_judge import judged, names_in

GEOMETRIES = [
    ((1, 3, 7, 7), (4, 3, 3, 3), 1, 0),
    ((2, 2, 9, 5), (3, 2, 4, 1), 2, 1),
    ((1, 1, 6, 8), (2, 1, 2, 5), 3, 2),
    ((3, 4, 5, 6), (1, 4, 1, 1), 2, 0),
]


def draw(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def by_onnx_runtime(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[stride] * 2, pads=[padding] * 4)
    arrays = {"x": x, "w": w, "b": bias}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, one.shape) for name, one in arrays.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "conv", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, arrays)[0])


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding"), GEOMETRIES)
def test_the_reference_is_what_onnx_runtime_computes(x_shape, w_shape, stride, padding):
    x, w, bias = draw(x_shape), draw(w_shape), draw(w_shape[:1])
    want = by_onnx_runtime(x, w, bias, stride, padding)
    got = reference.convolution(x, w, bias, stride, padding)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for axis in (2, 3):
        assert reference.output_size(x_shape[axis], w_shape[axis], stride, padding) == want.shape[axis]
    sizes = reference.Sizes(x_shape, w_shape, want.shape)
    assert sizes.macs == want.size * w[0].size
    assert sizes.bytes == x.nbytes + w.nbytes + want.nbytes


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding"), GEOMETRIES)
def test_the_reference_columns_are_those_of_torch(x_shape, w_shape, stride, padding):
    x = draw(x_shape)
    want = torch.nn.functional.unfold(torch.from_numpy(x), w_shape[2:], stride=stride, padding=padding).numpy()
    got = [reference.columns(image, w_shape[2:], stride, padding) for image in x]
    np.testing.assert_array_equal(np.stack(got), want)
    high, wide = (reference.output_size(x_shape[axis], w_shape[axis], stride, padding) for axis in (2, 3))
    sizes = reference.Sizes(x_shape, w_shape, (x_shape[0], w_shape[0], high, wide))
    assert sizes.column_bytes == want.nbytes


@pytest.mark.parametrize("seed", range(40))
def test_drawn_layers_are_layers(seed):
    one = reference.draw_sizes(np.random.default_rng(seed))
    assert min(*one.x, *one.w, *one.y) > 0
    assert one.x[1] == one.w[1]
    assert one.x[1] != one.w[0]
    assert one.x[2] != one.x[3]


def test_panels_hold_every_column_once():
    b = draw((3, 10))
    panels = packed(b, 4)
    assert panels.shape == (3, 3, 4)
    np.testing.assert_array_equal(np.concatenate(list(panels), axis=1)[:, :10], b)
    assert not panels[2, :, 2:].any()


# -- the table


NOW = [0.0]


def lasting(seconds: float):
    """A convolution that takes so long on the clock outside."""

    def convolution(*arguments):
        NOW[0] += seconds
        return reference.convolution(*arguments)

    return convolution


@pytest.fixture(autouse=True)
def hands(monkeypatch):
    """The clock outside stands still, but for what is `lasting` and for 4 ms on the way there and back."""
    ask = LocalTransport.ask

    def slowly(self, request, seconds):
        NOW[0] += 0.004
        return ask(self, request, seconds)

    monkeypatch.setattr(LocalTransport, "ask", slowly)
    monkeypatch.setitem(timing.race.__kwdefaults__, "clock", lambda: NOW[0])


def in_table(seconds: dict[str, list[float]], rows: tuple[str, ...] = tuple(RESNET18), **changes) -> dict:
    """A notebook whose table has these times in rows; measured by one comparison a row unless said otherwise."""
    table = convolution_table()
    for row in rows:
        for column, times in seconds.items():
            parts = {"flops": 231_211_008.0, "run": row, "agreed": True} | changes.get(column.replace("-", "_"), {})
            table[row, column] = Measurement(tuple(times), **parts)

    functions = {"conv_direct": lasting(0.03), "conv_blas": lasting(0.00075)}
    return {"table": table, "gflops": lambda macs, seconds: 2e-9 * macs / seconds, **functions}


@pytest.fixture(autouse=True)
def small_layers(monkeypatch):
    """What the clock outside calls is soon done."""
    monkeypatch.setattr(races, "RESNET18", dict.fromkeys(RESNET18, Layer(2, 5, 3, 3)))


def times(median: float, rounds: int = 21) -> list[float]:
    return [median * (1 + 0.01 * (i - rounds // 2)) for i in range(rounds)]


FAST, SLOW, CLOSE = times(0.001), times(0.04), [0.001 * (1 + 0.3 * (-1) ** i) for i in range(21)]


def losses(names: dict, tmp_path) -> dict[str, str]:
    return {name: reason for name, reason in judged(names, tmp_path, "P3.5").items() if reason}


def test_a_table_that_was_measured_gets_all_points(tmp_path):
    assert losses(in_table({"no-BLAS": SLOW, "BLAS": FAST}), tmp_path) == {}


def test_a_claim_that_stays_open_costs_nothing(tmp_path):
    names = in_table({"no-BLAS": CLOSE, "BLAS": FAST})
    assert names["table"].verdicts()[0].state == "open"
    assert losses(names, tmp_path) == {}


def test_a_table_of_invented_times_fails_by_the_clock(tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    names["conv_blas"] = names["conv_direct"]
    lost = losses(names, tmp_path)
    assert set(lost) == {"blas_is_faster_and_agrees"}
    assert "no-BLAS over BLAS: " in lost["blas_is_faster_and_agrees"]


def multiplied(seconds: list[float], factor: float = 10) -> list[float]:
    return [factor * one for one in seconds]


@pytest.mark.parametrize(
    ("slow", "fast", "lost"),
    [
        pytest.param(multiplied(SLOW, 100), FAST, True, id="numbers invented"),
        pytest.param(multiplied(SLOW), FAST, True, id="one column times ten"),
        pytest.param(SLOW, multiplied(FAST, 0.1), True, id="a timer that was patched for one side"),
        pytest.param(multiplied(SLOW, 3), FAST, False, id="another machine's"),
        pytest.param(multiplied(SLOW), multiplied(FAST), False, id="both columns times ten"),
        pytest.param(multiplied(SLOW, 0.05), FAST, False, id="less than there is"),
    ],
)
def test_a_table_loses_points_if_it_tells_far_more_than_the_clock_finds(slow, fast, lost, tmp_path):
    """The functions take 30 and 0.75 ms; what is told of both together, or too modestly, earns nothing."""
    reasons = losses(in_table({"no-BLAS": slow, "BLAS": fast}), tmp_path)
    assert set(reasons) == ({"blas_is_faster_and_agrees"} if lost else set())


def test_columns_that_hide_which_function_is_faster_fail(tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    names["conv_direct"], names["conv_blas"] = names["conv_blas"], names["conv_direct"]
    assert set(losses(names, tmp_path)) == {"blas_is_faster_and_agrees"}


def test_one_forged_row_is_found_where_there_is_time_for_all(tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    forged = Measurement(tuple(multiplied(SLOW)), 231_211_008.0, "C3", True)
    names["table"]["C3", "no-BLAS"] = forged
    assert "C3, no-BLAS over BLAS" in losses(names, tmp_path)["blas_is_faster_and_agrees"]


def test_what_comes_of_a_race_is_looked_at(tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    names["conv_blas"] = lambda x, w, *rest: reference.convolution(0 * x, w, *rest)
    assert "wrong values" in losses(names, tmp_path)["blas_is_faster_and_agrees"]


@pytest.mark.parametrize("value", [None, 3, "no"])
def test_a_convolution_that_is_no_function_fails(value, tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    names["conv_blas"] = value
    assert "is no function" in losses(names, tmp_path)["blas_is_faster_and_agrees"]


def test_functions_that_are_gone_when_they_are_timed_fail(tmp_path):
    names = in_table({"no-BLAS": SLOW, "BLAS": FAST})
    del names["conv_blas"]
    assert "defines no `conv_blas`" in losses(names, tmp_path)["blas_is_faster_and_agrees"]


def test_an_empty_table_gets_nothing_for_its_cells(tmp_path):
    lost = losses(in_table({}), tmp_path)
    assert set(lost) == {"rows_are_comparisons", "operations_are_told", "blas_is_faster_and_agrees"}
    assert "C1/no-BLAS" in lost["rows_are_comparisons"]


def test_rows_that_are_missing_are_counted_once(tmp_path):
    assert set(losses(in_table({"no-BLAS": SLOW, "BLAS": FAST}, ("C2",)), tmp_path)) == {"rows_are_comparisons"}


def test_a_column_that_is_missing_gets_nothing(tmp_path):
    assert len(losses(in_table({"no-BLAS": SLOW}), tmp_path)) == 3


@pytest.mark.parametrize(
    ("seconds", "changes", "reason"),
    [
        ({"no-BLAS": times(0.04, 5), "BLAS": times(0.001, 5)}, {}, "too few rounds"),
        ({"no-BLAS": [0.04] * 21, "BLAS": FAST}, {}, "to the last digit"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"run": "another"}}, "not from one comparison"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"run": ""}, "no_BLAS": {"run": ""}}, "not from one comparison"),
    ],
)
def test_cells_that_no_comparison_has_filled_are_told(seconds, changes, reason, tmp_path):
    lost = losses(in_table(seconds, **changes), tmp_path)
    assert set(lost) == {"rows_are_comparisons"}
    assert reason in lost["rows_are_comparisons"]


@pytest.mark.parametrize(
    ("seconds", "changes", "check", "reason"),
    [
        ({"no-BLAS": FAST, "BLAS": SLOW}, {}, "blas_is_faster_and_agrees", "BLAS is not faster"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"agreed": False}}, "blas_is_faster_and_agrees", "never compared"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"flops": 1e8}}, "operations_are_told", "100,000,000"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"no_BLAS": {"flops": None}}, "operations_are_told", "none"),
    ],
)
def test_cells_that_say_something_wrong_cost_one_check(seconds, changes, check, reason, tmp_path):
    lost = losses(in_table(seconds, **changes), tmp_path)
    assert set(lost) == {check}
    assert reason in lost[check]


# -- refusals, rounding and nonsense

REFUSED = """
import numba
@numba.njit
def conv_direct(x, w, bias, stride, padding):
    return np.pad(x, padding)
"""


def test_what_numba_refuses_is_told_as_such(tmp_path):
    said = judged(names_in(REFUSED), tmp_path, "P3.2")
    assert all("Numba cannot compile this" in reason for reason in said.values()), said


def test_costs_of_float32_are_right(tmp_path):
    source = """
def conv_cost(x, w, y):
    macs, moved = np.prod(y) * np.prod(w[1:]), 4 * (np.prod(x) + np.prod(w) + np.prod(y))
    return {"macs": macs, "bytes": moved, "intensity": np.float32(2 * macs / moved)}
"""
    said = judged(names_in(source), tmp_path, "P3.1")
    assert not any(said[name] for name in ("macs_are_counted", "bytes_are_counted", "intensity_is_flop_per_byte"))


NONSENSE = [None, 0, -1.5, "no", [1, [2]], {"macs": 0, "bytes": 0, "intensity": 0}, float("nan"), (),
            np.zeros((0, 0)), np.zeros((1, 3, 4, 4)), np.array("x")]  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE)
@pytest.mark.parametrize("task", [task.id for task in P3.tasks])
def test_nonsense_passes_no_check_and_breaks_none(task, answer, tmp_path):
    names = dict.fromkeys(
        ["conv_cost", "output_size", "conv_direct", "im2col", "conv_blas", "gflops", "gemm_reordered", "gemm_blocked",
         "pack", "gemm_packed", "attainable", "ridge", "im2col_bytes", "growth", "predict", "best_possible"],
        lambda *arguments: answer,
    )  # fmt: skip
    said = judged(names, tmp_path, task)
    said.pop("inputs_are_left_alone", None)  # which is true
    assert all(said.values()), said
    assert not any("cannot make sense" in reason for reason in said.values())
