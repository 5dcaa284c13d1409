"""Building blocks of P3's examples of solutions: each function returns new source by cell id, right by default."""

from __future__ import annotations

from textwrap import indent

from tests.grading.projects.examples import Snippet


def _function(head: str, body: str) -> str:
    return f"{head}\n{indent(body.strip(), '    ')}\n"


costs = Snippet("""# %% P3-1-solution
import math
def conv_cost(x, w, y):
    macs = <<macs: math.prod(y) * math.prod(w[1:])>>
    moved = <<moved: 4 * (math.prod(x) + math.prod(w) + math.prod(y))>>
    return dict(macs=macs, bytes=moved, intensity=<<intensity: 2 * macs / moved>>)
""")


size = Snippet("""# %% P3-1-solution-2
def output_size(size, kernel, stride, padding):
    return <<result:>>
""")


direct = Snippet("""# %% P3-2-solution
def conv_direct(x, w, bias, stride, padding):
    <<before:>>
    x = np.pad(x, ((0, 0), (0, 0), <<widths: (padding, padding)>>, <<widths>>))
    views = np.lib.stride_tricks.sliding_window_view(x, <<window: w.shape[2:]>>, axis=(2, 3))
    views = views[:, :, <<steps: ::stride, ::stride>>]
    weights = <<w: w>>
    y = np.zeros((len(x), len(w), *views.shape[2:4]), np.float32)
    for c in range(w.shape[1]):
        y += (views[:, None, c] * weights[:, c, None, None]).sum((-2, -1))
    y = y + <<bias: bias[:, None, None]>>
    return y
""")


columns = Snippet("""# %% P3-3-solution
def im2col(x, kernel, stride, padding):
    original = x
    x = <<padded: np.pad(x, ((0, 0), (padding, padding), (padding, padding)))>>
    views = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(1, 2))[:, <<steps: ::stride, ::stride>>]
    ordered = views.transpose(<<order: 0, 3, 4, 1, 2>>)
    return <<result: ordered.reshape(len(x) * kernel[0] * kernel[1], -1)>>
""")


blas = Snippet("""# %% P3-4-solution
def conv_blas(x, w, bias, stride, padding):
    high = (x.shape[2] + 2 * padding - w.shape[2]) // stride + 1
    wide = (x.shape[3] + 2 * padding - w.shape[3]) // stride + 1
    y = np.zeros((len(x), len(w), high, wide), <<dtype: np.float32>>)
    for n, image in enumerate(<<images: x>>):
        rows, columns = <<flat: w.reshape(len(w), -1)>>, im2col(image, w.shape[2:], stride, padding)
        y[n] = (<<product: rows @ columns>>).reshape(y[n].shape)
        <<after:>>
    y = y + <<bias: bias[:, None, None]>>
    return y
""")


rate = Snippet("""# %% P3-5-solution
def gflops(macs, seconds):
    return <<result:>>
""")


filling = Snippet("""# %% P3-5-solution-2
import gc
import time
from mlhood.measure import Measurement
gc.freeze()  # each comparison collects garbage first, among all that is loaded
def counted(times, convolution):
    pixel = np.ones((1, 1, 1, 1), np.float32)
    return convolution(pixel, pixel, np.zeros(1, np.float32), 1, 0) * 0 + sum(range(times)) * np.float32(0)

slow, fast = (lambda: counted(40_000, conv_direct)), (lambda: counted(7000, conv_blas))

for row, layer in <<rows: layers.items()>>:
    def timed(alternatives):
        return compare(alternatives, shortest=1e-4<<options: , flops=2 * layer.macs>>)
    alternatives = <<alternatives: {"no-BLAS": slow, "BLAS": fast}>>
    <<fill: table.fill(row, timed(alternatives))>>
""")


def reordered(order: str = "ikj", step: str = "c[i, j] += a[i, k] * b[k, j]") -> dict[str, str]:
    sizes = {"i": "len(a)", "j": "b.shape[1]", "k": "len(b)"}
    loops = "".join(f"{'    ' * depth}for {name} in range({sizes[name]}):\n" for depth, name in enumerate(order))
    body = f"c = np.zeros((len(a), b.shape[1]), np.float32)\n{loops}{'    ' * len(order)}{step}\nreturn c"
    return {"P3-7-solution": _function("def gemm_reordered(a, b):", body)}


blocked = Snippet("""# %% P3-7-solution-2
def gemm_blocked(a, b, block):
    (m, depth), n = a.shape, b.shape[1]
    c = np.zeros((m, n), np.float32)
    (last_i, last_k, last_j), (bi, bk, bj) = (<<stop: m, depth, n>>), (<<blocks: block, block, block>>)
    for i0 in range(0, last_i, bi):
        for k0 in range(0, last_k, bk):
            for j0 in range(0, last_j, bj):
                i1, k1, j1 = min(i0 + bi, m), min(k0 + bk, depth), min(j0 + bj, n)
                c[i0:i1, j0:j1] += sum(np.outer(a[i0:i1, k], b[k, j0:j1]) for k in range(k0, k1))
    return c
""")


packing = Snippet("""# %% P3-7-solution-3
def pack(b, width):
    panels = np.zeros((-(-b.shape[1] // width), len(b), width), b.dtype)
    for p in range(len(panels)):
        part = b[:, p * width:(p + 1) * width]
        <<fill: panels[p, :, :part.shape[1]] = part>>
    return panels
# %% P3-7-solution-4
def gemm_packed(a, b):
    panels = pack(b, 4)
    c = np.zeros((len(a), b.shape[1]), np.float32)
    for p, panel in enumerate(<<used: panels>>):
        c[:, 4 * p:4 * p + 4] = sum(map(np.outer, a.T, panel))[:, :b.shape[1] - 4 * p]
    return c
""")


roofs = Snippet("""# %% P3-9-solution
def attainable(intensity, peak, bandwidth):
    return <<lower: np.minimum(peak, intensity * bandwidth)>>
def ridge(peak, bandwidth):
    return <<meeting: peak / bandwidth>>
""")


memory = Snippet("""# %% P3-10-solution
import math
def im2col_bytes(x, w, y):
    return <<moved: 4 * x[0] * math.prod(w[1:]) * y[2] * y[3]>>
def growth(x, w, y):
    return <<ratio: im2col_bytes(x, w, y) / (4 * math.prod(x))>>
""")


worth = Snippet("""# %% P3-11-solution
def predict(total, parts, speedups):
    rest = total - sum(parts.values())
    return <<predicted: rest + sum(parts[name] / speedups.get(name, 1) for name in parts)>>
def best_possible(total, parts):
    rest = total - sum(parts.values())
    return <<best: total / rest if rest else float('inf')>>
""")


COUNTED = """
import gc
gc.freeze()  # each comparison collects garbage first, among all that is loaded

def counted(times, convolution):
    \"\"\"Something that takes as long as it should, beside a convolution of a single pixel.\"\"\"
    pixel = np.ones((1, 1, 1, 1), np.float32)
    return convolution(pixel, pixel, np.zeros(1, np.float32), 1, 0) * 0 + sum(range(times)) * np.float32(0)
"""
FILLED = (
    COUNTED
    + """
for row, layer in layers.items():
    table.fill(row, compare({"no-BLAS": lambda: counted(40_000, conv_direct), "BLAS": lambda: counted(7000, conv_blas)},
                            flops=2 * layer.macs, shortest=1e-4))
"""
)


# P3.6's table; no model is compiled.
model_filling = Snippet(
    f"# %% P3-6-solution-2{COUNTED}"
    """
for row in models_table.rows:
    models_table.fill(row, compare({"no-BLAS": lambda: counted(<<no_blas: 40_000, conv_direct>>),
                                    "BLAS": lambda: counted(<<blas: 15_000, conv_blas>>)},
                                   shortest=1e-4))
"""
)


def kept(cells: dict[str, str], name: str) -> dict[str, str]:
    """The same, but all results for arguments of the same shapes are returned in the same memory."""
    ((cell, source),) = cells.items()
    head = f"kept_by_{name} = {{}}\n{source}\nnew_by_{name} = {name}\n"
    body = f"""
new = new_by_{name}(*arguments)
shapes = str([getattr(argument, "shape", argument) for argument in arguments])
result = kept_by_{name}.setdefault(shapes, np.empty_like(new))
result[:] = new
return result
"""
    return {cell: head + _function(f"def {name}(*arguments):", body)}


# P3.6's function, right by default.
mixing = Snippet("""# %% P3-6-solution
def mixed(shapes, conv):
    def convolve(x, w, bias, stride, padding):
        return (<<choice: conv if w.shape in shapes else direct>>)(x, w, bias, stride, padding)<<result:>>
    return convolve
""")


FAST_HEAD = "@compiled\ndef gemm_fast(a, b):\n    c = np.zeros((a.shape[0], b.shape[1]), np.float32)\n"


def fast(loops: str) -> dict[str, str]:
    """P3.8's product, from loops that fill c."""
    return {"P3-8-solution": "", "P3-8-solution-2": FAST_HEAD + indent(loops.strip(), "    ") + "\n    return c\n"}


# Right, but neither compiled nor measured on real layers, which would take half a minute per notebook.
QUICK = {
    **direct(),
    "P3-5-solution-2": FILLED,
    **model_filling(),
    **reordered("ikj"),
    **blocked(),
    **packing(),
}


def kernels(naive: str = "", coalesced: str = "") -> dict[str, str]:
    """P3.12, from the bodies of its kernels."""
    body = """
{index} = cuda.grid(2)
if i < c.shape[0] and j < c.shape[1]:
    total = float32(0)
    for k in range(b.shape[0]):
        total += a[i, k] * b[k, j]
    c[i, j] = total
"""
    first = _function("@cuda.jit\ndef gpu_naive(a, b, c):", naive or body.format(index="i, j"))
    second = _function("@cuda.jit\ndef gpu_coalesced(a, b, c):", coalesced or body.format(index="j, i"))
    return {"P3-12-solution": first, "P3-12-solution-2": second}


def tiled(**changes: str) -> dict[str, str]:
    """P3.13, with some parts of its kernel changed."""
    parts = {
        "load_a": "sa[y, x] = a[i, t + x] if i < a.shape[0] and t + x < a.shape[1] else float32(0)",
        "load_b": "sb[y, x] = b[t + y, j] if t + y < b.shape[0] and j < b.shape[1] else float32(0)",
        "loaded": "cuda.syncthreads()",
        "product": "total += sa[y, k] * sb[k, x]",
        "used": "cuda.syncthreads()",
    } | changes
    body = """
sa = cuda.shared.array((TILE, TILE), float32)
sb = cuda.shared.array((TILE, TILE), float32)
x, y = cuda.threadIdx.x, cuda.threadIdx.y
j, i = cuda.grid(2)
total = float32(0)
for t in range(0, a.shape[1], TILE):
    {load_a}
    {load_b}
    {loaded}
    for k in range(TILE):
        {product}
    {used}
if i < c.shape[0] and j < c.shape[1]:
    c[i, j] = total
"""
    return {"P3-13-solution-3": _function("@cuda.jit\ndef gpu_tiled(a, b, c):", body.format(**parts))}


gpu_needs = Snippet("""# %% P3-14-solution
def tiled_bytes(n, tile):
    return <<moved: 8 * n**3 // tile + 4 * n * n>>
def gpu_seconds(flops, moved, peak, bandwidth):
    return <<seconds: max(flops / peak, moved / bandwidth)>>
# %% P3-14-solution-2
import math
def tile_needed(peak, bandwidth):
    return <<needed: 1 << max(0, math.ceil(math.log2(4 * peak / bandwidth)))>>
""")
