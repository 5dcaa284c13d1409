"""The checks of P3 in the test's own process: their references, tables, compilation errors and nonsense results."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import onnxruntime
import pytest
import torch

import mlhood
from mlhood.compiler.analysis.convolutions import convolutions
from mlhood.grading.checks import timing
from mlhood.grading.checks.timing_verdict import CourseVersion
from mlhood.grading.projects.p3 import P3, fast_product, probes, timed
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.layers import Layer
from mlhood.kernels.tables import RESNET18, convolution_table, model_table
from mlhood.measure import Measurement
from mlhood.measure.ratio import Ratio
from tests.grading.projects.local_grading import graded, lost, names_in, result_of

GEOMETRIES = [
    ((1, 3, 7, 7), (4, 3, 3, 3), 1, 0),
    ((2, 2, 9, 5), (3, 2, 4, 1), 2, 1),
    ((1, 1, 6, 8), (2, 1, 2, 5), 3, 2),
    ((3, 4, 5, 6), (1, 4, 1, 1), 2, 0),
]


def draw(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def solution() -> Solution:
    """The solutions, which checks compare with."""
    return Solution("P3", P3.parameters)


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding"), GEOMETRIES)
def test_the_solutions_compute_what_torch_does(x_shape, w_shape, stride, padding, solution):
    x, w, bias = draw(x_shape), draw(w_shape), draw(w_shape[:1])
    want = torch.conv2d(*map(torch.from_numpy, (x, w, bias)), stride=stride, padding=padding).numpy()
    for convolution in (partial(solution, "conv_direct"), partial(solution, "conv_blas")):
        np.testing.assert_allclose(convolution(x, w, bias, stride, padding), want, rtol=1e-4, atol=1e-5)
    sizes = [solution("output_size", x_shape[axis], w_shape[axis], stride, padding) for axis in (2, 3)]
    assert sizes == [*want.shape[2:]]
    columns = torch.nn.functional.unfold(torch.from_numpy(x), w_shape[2:], stride=stride, padding=padding).numpy()
    np.testing.assert_array_equal([solution("im2col", image, w_shape[2:], stride, padding) for image in x], columns)
    assert solution("im2col_bytes", x_shape, w_shape, want.shape) == columns.nbytes
    cost = solution("conv_cost", x_shape, w_shape, want.shape)
    assert (cost["macs"], cost["bytes"]) == (want.size * w[0].size, x.nbytes + w.nbytes + want.nbytes)


def test_the_probe_packs_as_the_solution_does(solution):
    b = draw((3, 10))
    np.testing.assert_array_equal(probes.packed(b, 4), solution("pack", b, 4))


# -- the table


NOW = [0.0]


def taking(seconds: float):
    """A convolution that takes this long by the external clock."""

    def convolution(*arguments):
        NOW[0] += seconds
        return no_jax.conv2d(*arguments)

    return convolution


@pytest.fixture(autouse=True)
def external_clock(monkeypatch):
    """A simulated clock: only functions made by `taking` take time, and each round trip 4 ms."""
    send = LocalTransport.send

    def timed_send(self, request, seconds):
        NOW[0] += 0.004
        return send(self, request, seconds)

    def definition(layer):
        def run():
            NOW[0] += 0.03

        return CourseVersion("no-BLAS convolution", run, most=8.0)

    monkeypatch.setattr(timed, "definition", definition)
    monkeypatch.setattr(timing, "wait_until_quiet", lambda: None)
    monkeypatch.setattr(LocalTransport, "send", timed_send)
    monkeypatch.setattr(timing, "clock_of", lambda submission: lambda: NOW[0])
    monkeypatch.setattr(timing, "course_clock", lambda: NOW[0])


def with_table(seconds: dict[str, list[float]], **changes) -> dict:
    """A notebook whose table holds these times, measured by one comparison per row unless `changes` overrides it."""
    table = convolution_table()
    for row in RESNET18:
        for column, times in seconds.items():
            parts = {"flops": 231_211_008.0, "run": row, "agreed": True} | changes.get(column.replace("-", "_"), {})
            table[row, column] = Measurement(tuple(times), **parts)

    functions = {"conv_direct": taking(0.03), "conv_blas": taking(0.00075)}
    formulas = {"gflops": lambda macs, seconds: 2e-9 * macs / seconds, "headroom": lambda *factors: math.prod(factors)}
    return {"table": table, **formulas, **functions}


@pytest.fixture(autouse=True)
def small_layers(monkeypatch):
    """Layers so small that the externally timed calls are fast."""
    monkeypatch.setattr(timed, "RESNET18", dict.fromkeys(RESNET18, Layer(2, 5, 3, 3)))


def times(median: float, rounds: int = 21) -> list[float]:
    return [median * (1 + 0.01 * (i - rounds // 2)) for i in range(rounds)]


FAST, SLOW, NOISE = times(0.001), times(0.04), [0.02 * (1 + 0.99 * (-1) ** i) for i in range(21)]
CLAIMED = {"rows_are_comparisons", "blas_is_faster_and_agrees"}  # both demand what the grader measures


def losses(names: dict, tmp_path) -> dict[str, str]:
    return lost(names, tmp_path, "P3.5")


def test_a_measured_table_gets_all_points(tmp_path):
    assert losses(with_table({"no-BLAS": SLOW, "BLAS": FAST}), tmp_path) == {}


def test_a_claim_that_is_open_fails_where_nothing_is_measured_again(tmp_path):
    names = with_table({"no-BLAS": NOISE, "BLAS": NOISE[::-1]})
    result = result_of("P3.5", names, tmp_path, remeasure=False)
    failed = {check.name: check.what for check in result.checks if check.status == "failed"}
    assert failed == {"blas_is_faster_and_agrees": "BLAS is not faster"}


def test_swapped_columns_fail(tmp_path):
    found = losses(with_table({"no-BLAS": FAST, "BLAS": SLOW}), tmp_path)
    assert set(found) == CLAIMED
    assert "BLAS is not faster" in found["blas_is_faster_and_agrees"]


def test_an_empty_table_gets_no_points(tmp_path):
    found = losses(with_table({}), tmp_path)
    assert set(found) == {"rows_are_comparisons", "operations_are_told", "blas_is_faster_and_agrees"}
    assert "C1/no-BLAS" in found["rows_are_comparisons"]


@pytest.mark.parametrize(
    ("seconds", "changes", "reason"),
    [
        ({"no-BLAS": times(0.04, 5), "BLAS": times(0.001, 5)}, {}, "too few rounds"),
        ({"no-BLAS": [0.04] * 21, "BLAS": FAST}, {}, "to the last digit"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"run": "another"}}, "not from one comparison"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"run": ""}, "no_BLAS": {"run": ""}}, "not from one comparison"),
    ],
)
def test_cells_that_no_comparison_filled_are_reported(seconds, changes, reason, tmp_path):
    found = losses(with_table(seconds, **changes), tmp_path)
    assert set(found) == {"rows_are_comparisons"}
    assert reason in found["rows_are_comparisons"]


@pytest.mark.parametrize(
    ("seconds", "changes", "check", "reason"),
    [
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"agreed": False}}, "blas_is_faster_and_agrees", "never compared"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"no_BLAS": {"threads": 2}}, "rows_are_comparisons", "not made on one core"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"BLAS": {"flops": 1e8}}, "operations_are_told", "100,000,000"),
        ({"no-BLAS": SLOW, "BLAS": FAST}, {"no_BLAS": {"flops": None}}, "operations_are_told", "none"),
    ],
)
def test_a_wrong_cell_costs_one_check(seconds, changes, check, reason, tmp_path):
    found = losses(with_table(seconds, **changes), tmp_path)
    assert set(found) == {check}
    assert reason in found[check]


# -- the table of the model


def with_models() -> dict:
    """A notebook whose table of models holds what its convolutions take."""
    table = model_table()
    for row in table.rows:
        for column, median in (("no-BLAS", 0.04), ("BLAS", 0.001)):
            table[row, column] = Measurement(tuple(times(median)), None, row, True)
    names = with_table({}) | {"models_table": table, "mixed": mixed}
    del names["table"]
    single = {name: in_float32(names[name]) for name in ("conv_direct", "conv_blas")}
    return names | single


def in_float32(function):
    return lambda *arguments: function(*arguments).astype(np.float32)


def mixed(shapes, conv):
    def convolve(x, w, *rest):
        return conv(x, w, *rest) if w.shape in shapes else no_jax.conv2d(x, w, *rest).astype(np.float32)

    return convolve


@pytest.fixture(autouse=True)
def model_by_the_definition(monkeypatch):
    def definition(*arguments):
        def run():
            NOW[0] += 0.3

        return CourseVersion("no-BLAS model", run, most=8.0)

    monkeypatch.setattr(timed, "model_by_definition", definition)


MODEL_SEED = 9  # with some others no sum of so small a model is positive after ReLU, and wrong weights change nothing


def model_losses(names: dict, tmp_path) -> dict[str, str]:
    return lost(names, tmp_path, "P3.6", seed=MODEL_SEED)


def test_an_honest_table_of_models_gets_all_points(tmp_path):
    assert model_losses(with_models(), tmp_path) == {}


def test_a_model_with_a_wrong_convolution_fails(tmp_path):
    names = with_models()
    right = names["conv_blas"]
    names["conv_blas"] = lambda x, w, *rest: right(x, -w, *rest)
    assert "wrong values" in model_losses(names, tmp_path)["blas_speeds_up_the_model"]


def test_the_graders_model_is_resnet18(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(timed.resnet18(np.random.default_rng(0), [4, 8, 12, 16], 64))
    found = convolutions(mlhood.compile(path, stop_after="hir"))
    assert len(found) == 20
    for stage, channels in enumerate([4, 8, 12, 16]):
        same = [layer for layer in found if layer.w == (channels, channels, 3, 3)]
        assert [layer.x[2:] for layer in same] == [(16 >> stage,) * 2] * (3 if stage else 4)
    image = np.random.default_rng(1).standard_normal((1, 3, 64, 64), np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    want = session.run(None, {"image": image})[0]
    got = mlhood.compile(path, target="direct").run(image=image)["logits"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


# -- the open task


def raced(own: float, course: float, rounds: int = 7) -> Ratio:
    """What a race says if the student's product takes `own` seconds, and the course's `course`."""
    ratios = [course / own * (1 + 0.01 * (i - rounds // 2)) for i in range(rounds)]
    return fast_product.trimmed_mean(ratios, fast_product.SIZE)


@pytest.mark.parametrize(("own", "reached"), [(4.0, 3), (3.0, 3), (5.15, 3), (5.8, 2), (7.0, 1), (20.0, 0)], ids=str)
def test_each_step_needs_its_share_of_the_courses_speed(own, reached, monkeypatch, tmp_path):
    monkeypatch.setattr(fast_product, "_race", lambda submission: raced(own, 4.0))
    monkeypatch.setattr(fast_product, "wait_until_quiet", lambda: None)
    result = result_of("P3.8", {"gemm_fast": np.matmul}, tmp_path)
    assert [check.status == "passed" for check in result.checks] == [True] * (1 + reached) + [False] * (3 - reached)
    assert result.reached is not None
    assert result.reached.value == pytest.approx(4.0 / own, rel=1e-2)
    assert result.reached.course == 1
    assert not result.undecided


@pytest.mark.parametrize(
    ("races", "reached", "count"),
    [
        ([5.5, 4.0], 3, 2),  # one race was disturbed
        ([5.5, 5.5], 2, 2),
        ([30.0], 0, 1),  # too far below for noise
        ([5.5, 5.33, 5.33], 2, 3),  # 0.75 is within the noise of the others: it is left open
    ],
    ids=str,
)
def test_a_step_is_refused_by_two_races_or_from_far(races, reached, count, monkeypatch, tmp_path):
    waiting = iter(races)
    monkeypatch.setattr(fast_product, "_race", lambda submission: raced(next(waiting), 4.0))
    monkeypatch.setattr(fast_product, "wait_until_quiet", lambda: None)
    result = result_of("P3.8", {"gemm_fast": np.matmul}, tmp_path)
    assert sum(check.status == "passed" for check in result.checks) == 1 + reached
    assert len(races) - len(list(waiting)) == count
    assert ("within this machine" in result.why_undecided) == (count == fast_product.ATTEMPTS)


def test_no_row_of_a_timed_product_is_one_of_another_call():
    a = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    rows = [tuple(row) for shift in range(1, a.size // 2) for row in probes.shifted(a, shift)]
    assert len(set(rows)) == len(rows)


# -- compilation errors, rounding and nonsense

NOT_COMPILABLE = """
import numba
@numba.njit
def conv_direct(x, w, bias, stride, padding):
    return np.pad(x, padding)
"""


def test_numba_errors_get_a_hint_of_their_own(tmp_path):
    messages = graded(names_in(NOT_COMPILABLE), tmp_path, "P3.2")
    assert all("Numba cannot compile this" in message for message in messages.values()), messages
