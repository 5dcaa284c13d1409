"""How the checks of P3 grade the order of a matrix product's memory accesses."""

from __future__ import annotations

import pytest

from tests.grading.projects.local_grading import graded, lost, names_in

REORDERED = "reordered_is_right", "reordered_walks_along_rows"
BLOCKED = "blocked_is_right", "blocked_uses_blocks_again"
HEAD = "def gemm_reordered(a, b):\n    (m, depth), n = a.shape, b.shape[1]\n    c = np.zeros((m, n), np.float32)\n"
TAIL = "\n    return c\n"
ALONG_ROWS = {
    "i, k, j": "for i in range(m):\n for k in range(depth):\n  for j in range(n): c[i, j] += a[i, k] * b[k, j]",
    "row by row": "for i in range(m):\n for k, row in enumerate(b): c[i] += row * a[i, k]",
    "outer products": "for k in range(depth): c += np.outer(a[:, k], b[k])",
    "in float64": "a, b = a.astype(np.float64), np.asarray(b, dtype=float)\n"
    "for i in range(m):\n for k in range(depth): c[i] += a[i, k] * b[k]",
}
JUMPING = {
    "i, j, k": (
        "for i in range(m):\n for j in range(n):\n  for k in range(depth): c[i, j] += a[i, k] * b[k, j]",
        "jumps",
    ),
    "k, j, i": (
        "for k in range(depth):\n for j in range(n):\n  for i in range(m): c[i, j] += a[i, k] * b[k, j]",
        "jumps through c",
    ),
    "dot products": ("for i in range(m):\n for j in range(n): c[i, j] = a[i] @ b[:, j]", "jumps"),
    "the library": ("c = a @ b", "passes a whole matrix"),
}


def reordered(body: str) -> dict:
    return names_in(HEAD + "\n".join(f"    {line}" for line in body.splitlines()) + TAIL)


@pytest.mark.parametrize("style", ALONG_ROWS)
def test_any_order_along_rows_passes(style, tmp_path):
    assert not lost(reordered(ALONG_ROWS[style]), tmp_path, "P3.7", *REORDERED)


@pytest.mark.parametrize("style", JUMPING)
def test_other_orders_fail(style, tmp_path):
    body, reason = JUMPING[style]
    (message,) = lost(reordered(body), tmp_path, "P3.7", *REORDERED).values()
    assert reason in message


INNER = "for {0} in range({0}0, min({0}0 + {1}, {2})):"
SIZES = {"i": "m", "k": "depth", "j": "n"}


def blocked(outer: str, inner: str, body: str = "c[i, j] += a[i, k] * b[k, j]") -> dict:
    """Loops over blocks in one order, and within them loops over elements in another; other axes are not blocked."""
    lines = [f"for {name}0 in range(0, {SIZES[name]}, block):" for name in outer]
    for name in inner:
        size = SIZES[name]
        lines.append(INNER.format(name, "block", size) if name in outer else f"for {name} in range({size}):")
    nest = "\n".join("    " + " " * depth + line for depth, line in enumerate([*lines, body]))
    return names_in(HEAD.replace("gemm_reordered(a, b)", "gemm_blocked(a, b, block)") + nest + TAIL)


@pytest.mark.parametrize(
    ("outer", "inner"), [("ikj", "ikj"), ("ikj", "jki"), ("kji", "ijk"), ("kj", "ikj"), ("ij", "kij")]
)
def test_blocks_are_reused_in_any_order(outer, inner, tmp_path):
    assert not lost(blocked(outer, inner), tmp_path, "P3.7", *BLOCKED)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("", "ikj"), ("i", "ikj"), ("k", "kij")],
)
def test_loops_without_reuse_fail(outer, inner, tmp_path):
    (message,) = lost(blocked(outer, inner), tmp_path, "P3.7", *BLOCKED).values()
    assert "again and again" in message


OTHER_SIZES = """
def gemm_blocked(a, b, block):
    c, size = np.zeros((len(a), b.shape[1]), np.float32), {size}
    for i in range(0, len(a), size):
        for k in range(0, len(b), size):
            for j in range(0, b.shape[1], size):
                c[i:i + size, j:j + size] += a[i:i + size, k:k + size] @ b[k:k + size, j:j + size]
    return c
"""


@pytest.mark.parametrize("size", ["8", "-(-len(b) // block)"])
def test_blocks_of_another_size_fail(size, tmp_path):
    (message,) = lost(names_in(OTHER_SIZES.format(size=size)), tmp_path, "P3.7", *BLOCKED).values()
    assert "a different size than `block`" in message


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


def test_compiled_helpers_run_as_plain_python(tmp_path):
    assert not lost(names_in(HELPERS), tmp_path, "P3.7", *BLOCKED)


SIDEWAYS = """
def pack(b, width):
    return np.pad(b, ((0, 0), (0, -b.shape[1] % width))).T.reshape(-1, width, len(b))

@compiled
def gemm_packed(a, b):
    panels = pack(b, 4)
    return np.concatenate([a @ panel for panel in panels], axis=1)[:, :b.shape[1]]
"""


def test_a_wrong_pack_costs_only_its_own_points(tmp_path):
    messages = graded(names_in(SIDEWAYS), tmp_path, "P3.7")
    assert "wrong shape" in messages["panels_are_packed"]
    assert messages["packed_is_right"] == ""


THROWN_AWAY = """
def im2col(x, kernel, stride, padding):
    return x

@compiled
def conv_blas(x, w, bias, stride, padding):
    im2col(x[0], w.shape[2:], stride, padding)
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    y = np.einsum("nchwij,fcij->nfhw", windows, w) + bias[:, None, None]
    return y.astype(np.float32)

@compiled
def gemm_packed(a, b):
    pack(b, 4)
    return a @ b
""" + SIDEWAYS.partition("@compiled")[0]


def test_what_is_called_and_thrown_away_is_not_used(tmp_path):
    names = names_in(THROWN_AWAY)
    messages = lost(names, tmp_path, "P3.4")
    assert list(messages) == ["product_is_of_columns"]
    assert "does not get its columns" in messages["product_is_of_columns"]
    assert "does not multiply with the panels" in graded(names, tmp_path, "P3.7")["packed_reads_panels"]
