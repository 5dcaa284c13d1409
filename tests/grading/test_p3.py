"""The checks of P3 in this process: what they compare with, and how they judge the order of reads."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from mlhood.grading.marks import judge
from mlhood.grading.projects.p3 import reference
from mlhood.grading.projects.p3.probes import packed
from mlhood.grading.projects.p3.tasks import P3
from mlhood.grading.submission import LocalTransport, Submission
from mlhood.kernels.tables import RESNET18, convolution_table
from mlhood.measure import Measurement

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


def in_table(seconds: dict[str, list[float]], rows: tuple[str, ...] = tuple(RESNET18), **changes) -> dict:
    """A notebook whose table has these times in rows; measured by one comparison a row unless said otherwise."""
    table = convolution_table()
    for row in rows:
        for column, times in seconds.items():
            parts = {"flops": 231_211_008.0, "run": row, "agreed": True} | changes.get(column.replace("-", "_"), {})
            table[row, column] = Measurement(tuple(times), **parts)
    return {"table": table, "gflops": lambda macs, seconds: 2e-9 * macs / seconds}


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


# -- the order of reads


class Compiled:
    """As a function that Numba has compiled: it refuses arrays that remember, and has the Python function inside."""

    def __init__(self, function) -> None:
        self.py_func = function

    def __call__(self, *arguments):
        if not all(isinstance(one, np.ndarray | int) for one in arguments):
            raise TypeError("cannot determine the type of an argument")
        return self.py_func(*arguments)


def names_in(source: str) -> dict:
    names = {"np": np, "compiled": Compiled}
    exec(source, names)
    return names


def judged(names: dict, tmp_path, task: str = "P3.6", seed: int = 5) -> dict[str, str]:
    """What each check of a task says of the names of a notebook; empty where it passes."""
    wanted = P3.task(task)
    assert wanted is not None
    result = judge(wanted, Submission(LocalTransport(names), tmp_path, tmp_path), seed)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


HEAD = "def gemm_reordered(a, b):\n    (m, depth), n = a.shape, b.shape[1]\n    c = np.zeros((m, n), np.float32)\n"
TAIL = "\n    return c\n"
ALONG_ROWS = {
    "i, k, j": "for i in range(m):\n for k in range(depth):\n  for j in range(n): c[i, j] += a[i, k] * b[k, j]",
    "k, i, j": "for k in range(depth):\n for i in range(m):\n  for j in range(n): c[i, j] += a[i, k] * b[k, j]",
    "rows in brackets": "for i in range(m):\n for k in range(depth):\n  for j in range(n):\n"
    "   c[i][j] += a[i][k] * b[k][j]",
    "rows by rows": "for i in range(m):\n for k, row in enumerate(b): c[i] += row * a[i, k]",
    "outer products": "for k in range(depth): c += np.outer(a[:, k], b[k])",
    "a row times a row": "for i in range(m):\n for x, row in zip(a[i], b): c[i] = c[i] + x * row",
    "backwards": "for i in range(m):\n for k in range(depth):\n  for j in range(n - 1, -1, -1):\n"
    "   c[i, j] += a[i, k] * b[k, j]",
    "in float64": "a, b = a.astype(np.float64), np.asarray(b, dtype=float)\n"
    "for i in range(m):\n for k in range(depth): c[i] += a[i, k] * b[k]",
    "two rows at a time": "for k in range(depth):\n for i in range(0, m, 2):\n  for j in range(n):\n"
    "   for r in range(i, min(i + 2, m)): c[r, j] += a[r, k] * b[k, j]",
}
OTHERWISE = {
    "i, j, k": (
        "for i in range(m):\n for j in range(n):\n  for k in range(depth): c[i, j] += a[i, k] * b[k, j]",
        "jumps",
    ),
    "j, k, i": (
        "for j in range(n):\n for k in range(depth):\n  for i in range(m): c[i, j] += a[i, k] * b[k, j]",
        "jumps",
    ),
    "k, j, i": (
        "for k in range(depth):\n for j in range(n):\n  for i in range(m): c[i, j] += a[i, k] * b[k, j]",
        "jumps through c",
    ),
    "columns at once": ("for j in range(n): c[:, j] = sum(a[:, k] * x for k, x in enumerate(b[:, j]))", "jumps"),
    "dots": ("for i in range(m):\n for j in range(n): c[i, j] = a[i] @ b[:, j]", "jumps"),
    "the library": ("c = a @ b", "hands all of a matrix"),
    "the library by rows": ("for i in range(m): c[i] = a[i] @ b", "hands all of a matrix"),
}


def reordered(body: str) -> dict:
    return names_in(HEAD + "\n".join(f"    {line}" for line in body.splitlines()) + TAIL)


@pytest.mark.parametrize("style", ALONG_ROWS)
def test_whatever_walks_along_rows_is_reordered(style, tmp_path):
    said = judged(reordered(ALONG_ROWS[style]), tmp_path)
    assert said["reordered_is_right"] == said["reordered_walks_along_rows"] == ""


@pytest.mark.parametrize("style", OTHERWISE)
def test_whatever_walks_otherwise_is_told_so(style, tmp_path):
    body, reason = OTHERWISE[style]
    said = judged(reordered(body), tmp_path)
    assert said["reordered_is_right"] == ""
    assert reason in said["reordered_walks_along_rows"]


INNER = "for {0} in range({0}0, min({0}0 + {1}, {2})):"
SIZES = {"i": "m", "k": "depth", "j": "n"}


def blocked(outer: str, inner: str, body: str = "c[i, j] += a[i, k] * b[k, j]") -> dict:
    """Loops over blocks in an order, within them loops over the numbers in an order; what has no block is whole."""
    lines = [f"for {name}0 in range(0, {SIZES[name]}, block):" for name in outer]
    for name in inner:
        size = SIZES[name]
        lines.append(INNER.format(name, "block", size) if name in outer else f"for {name} in range({size}):")
    nest = "\n".join("    " + " " * depth + line for depth, line in enumerate([*lines, body]))
    return names_in(HEAD.replace("gemm_reordered(a, b)", "gemm_blocked(a, b, block)") + nest + TAIL)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [*product(["ikj", "ijk", "kji", "jki"], ["ikj", "ijk", "jki"]), ("kj", "ikj"), ("ij", "kij")],
)
def test_blocks_in_any_order_are_used_again(outer, inner, tmp_path):
    said = judged(blocked(outer, inner), tmp_path)
    assert said["blocked_is_right"] == said["blocked_uses_blocks_again"] == ""


def test_blocks_in_brackets_are_used_again(tmp_path):
    said = judged(blocked("ikj", "ikj", "c[i][j] += a[i][k] * b[k][j]"), tmp_path)
    assert said["blocked_is_right"] == said["blocked_uses_blocks_again"] == ""


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("", "ikj"), ("", "ijk"), ("i", "ikj"), ("j", "ikj"), ("k", "ikj"), ("k", "kij"), ("kj", "kij")],
)
def test_loops_that_use_no_block_again_are_told_so(outer, inner, tmp_path):
    said = judged(blocked(outer, inner), tmp_path)
    assert said["blocked_is_right"] == ""
    assert "again and again" in said["blocked_uses_blocks_again"]


OTHER_SIZES = """
def gemm_blocked(a, b, block):
    c, size = np.zeros((len(a), b.shape[1]), np.float32), {size}
    for i in range(0, len(a), size):
        for k in range(0, len(b), size):
            for j in range(0, b.shape[1], size):
                c[i:i + size, j:j + size] += a[i:i + size, k:k + size] @ b[k:k + size, j:j + size]
    return c
"""


@pytest.mark.parametrize(
    ("size", "told"), [("8", "another size than `block`"), ("4", "again"), ("-(-len(b) // block)", "again")]
)
def test_blocks_of_another_size_are_told_so(size, told, tmp_path):
    said = judged(names_in(OTHER_SIZES.format(size=size)), tmp_path)
    assert said["blocked_is_right"] == ""
    assert told in said["blocked_uses_blocks_again"]


ALL_ROWS = """
def gemm_blocked(a, b, block):
    c = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(0, len(b), block):
        for j in range(0, b.shape[1], block):
            c[:, j:j + block] += a[:, k:k + block] @ b[k:k + block, j:j + block]
    return c
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_block_that_meets_all_rows_at_once_is_used_again(seed, tmp_path):
    said = judged(names_in(ALL_ROWS), tmp_path, seed=seed)
    assert said["blocked_is_right"] == said["blocked_uses_blocks_again"] == ""


PANEL_BY_PANEL = """
def gemm_packed(a, b):
    c, panel = np.zeros((len(a), b.shape[1]), np.float32), np.zeros((len(b), 8), np.float32)
    for j0 in range(0, b.shape[1], 8):
        used = min(8, b.shape[1] - j0)
        panel[:, :used] = b[:, j0:j0 + used]
        for i in range(len(a)):
            for k in range(len(b)):
                c[i, j0:j0 + used] += a[i, k] * panel[k, :used]
    return c
"""


def test_panels_may_be_packed_one_at_a_time(tmp_path):
    said = judged(names_in(PANEL_BY_PANEL), tmp_path)
    assert said["packed_is_right"] == said["packed_reads_panels"] == ""


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


HELPERS = """
@compiled
def rows(c, a, b, i0, k0, j0, block):
    for i in range(i0, min(i0 + block, len(a))):
        for k in range(k0, min(k0 + block, len(b))):
            add(c, a, b, i, k, j0, block)

@compiled
def add(c, a, b, i, k, j0, block):
    for j in range(j0, min(j0 + block, b.shape[1])):
        c[i, j] += a[i, k] * b[k, j]

@compiled
def gemm_blocked(a, b, block):
    c = np.zeros((len(a), b.shape[1]), np.float32)
    for i0 in range(0, len(a), block):
        for k0 in range(0, len(b), block):
            for j0 in range(0, b.shape[1], block):
                rows(c, a, b, i0, k0, j0, block)
    return c
"""


def test_compiled_helpers_are_run_as_they_are_written(tmp_path):
    said = judged(names_in(HELPERS), tmp_path)
    assert said["blocked_is_right"] == said["blocked_uses_blocks_again"] == ""


WITH_A_BUFFER = """
@compiled
def gemm_blocked(a, b, block):
    c = np.empty_like(a, shape=(len(a), b.shape[1]))
    c[:] = np.float32(0)
    for i0 in range(0, len(a), block):
        for j0 in range(0, b.shape[1], block):
            for k0 in range(0, len(b), block):
                for i in range(i0, min(i0 + block, len(a))):
                    row = np.zeros(block, np.float32)
                    for k in range(k0, min(k0 + block, len(b))):
                        for j in range(j0, min(j0 + block, b.shape[1])):
                            row[j - j0] += a[i, k] * b[k, j]
                    c[i, j0:j0 + block] += row[:b.shape[1] - j0]
    return c
"""


def test_buffers_count_as_the_registers_that_they_are(tmp_path):
    said = judged(names_in(WITH_A_BUFFER), tmp_path)
    assert said["blocked_is_right"] == said["blocked_uses_blocks_again"] == ""


SIDEWAYS = """
def pack(b, width):
    return np.pad(b, ((0, 0), (0, -b.shape[1] % width))).T.reshape(-1, width, len(b))

@compiled
def gemm_packed(a, b):
    panels = pack(b, 4)
    return np.concatenate([a @ panel for panel in panels], axis=1)[:, :b.shape[1]]
"""


def test_a_wrong_pack_costs_only_its_own_points(tmp_path):
    said = judged(names_in(SIDEWAYS), tmp_path)
    assert "wrong shape" in said["panels_are_packed"]
    assert said["packed_is_right"] == ""


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
