"""Right solutions of P3 in styles other than the source notebook's."""

from __future__ import annotations

ARRAY_OPERATIONS = {
    "P3-1-solution": """
def conv_cost(x, w, y):
    x, w, y = (np.array(shape) for shape in (x, w, y))
    macs = np.prod(y) * np.prod(w[1:])
    moved = np.sum([x.prod(), w.prod(), y.prod()]) * np.dtype(np.float32).itemsize
    return {"bytes": moved, "macs": macs, "intensity": macs / moved * 2, "layer": "fine"}
""",
    "P3-1-solution-2": """
def output_size(size, kernel, stride, padding):
    return len(range(-padding, size + padding - kernel + 1, stride))
""",
    "P3-2-solution": """
def conv_direct(x, w, bias, stride, padding):
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[-2:], axis=(-2, -1))[..., ::stride, ::stride, :, :]
    y = sum((views[:, None, c] * w[:, c, None, None]).sum((-2, -1)) for c in range(w.shape[1]))
    return (y + bias.reshape(1, -1, 1, 1)).astype("float32")
""",
    "P3-3-solution": """
def im2col(x, kernel, stride, padding):
    x = np.pad(x, [(0, 0), (padding,) * 2, (padding,) * 2])
    c, h, w = x.shape
    rows = np.arange(0, h - kernel[0] + 1, stride)
    across = np.arange(0, w - kernel[1] + 1, stride)
    i = rows[None, :, None] + np.arange(kernel[0]).repeat(kernel[1])[:, None, None]
    j = across[None, None, :] + np.tile(np.arange(kernel[1]), kernel[0])[:, None, None]
    return x[:, i, j].reshape(c * kernel[0] * kernel[1], len(rows) * len(across))
""",
    "P3-4-solution": """
def conv_blas(x, w, bias, stride, padding):
    columns = np.stack([im2col(image, w.shape[2:], stride, padding) for image in x])
    y = np.matmul(w.reshape(w.shape[0], -1), columns) + bias[:, np.newaxis]
    return y.reshape(len(x), len(w), output_size(x.shape[2], w.shape[2], stride, padding), -1)
""",
    "P3-7-solution": """
def gemm_reordered(a, b):
    c = np.zeros((a.shape[0], b.shape[1]), dtype="float32")
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            c[i] += a[i, k] * b[k]
    return c
""",
    "P3-7-solution-2": """
def gemm_blocked(a, b, block):
    c = np.zeros((len(a), b.shape[1]), np.float32)
    for i in range(0, len(a), block):
        for j in range(0, b.shape[1], block):
            for k in range(0, len(b), block):
                c[i:i + block, j:j + block] += (a[i:i + block, k:k + block, None] * b[k:k + block, j:j + block]).sum(1)
    return c
""",
    "P3-7-solution-3": """
def pack(b, width):
    filled = np.pad(b, ((0, 0), (0, -b.shape[1] % width)))
    return np.ascontiguousarray(filled.reshape(len(b), -1, width).swapaxes(0, 1))
""",
    "P3-7-solution-4": """
def gemm_packed(a, b, width=8):
    return np.concatenate([(a[:, :, None] * panel).sum(1) for panel in pack(b, width)], axis=1)[:, :b.shape[1]]
""",
    "P3-11-solution": """
def predict(total, parts, speedups):
    factor = np.array([speedups.get(name, 1.0) for name in parts])
    seconds = np.array([*parts.values()])
    return total - np.sum(seconds - seconds / factor)

def best_possible(total, parts):
    with np.errstate(divide="ignore"):
        return np.float64(total) / (total - sum(parts.values()))
""",
}

LOOPS = {
    "P3-5-solution-2": """
pixel = np.ones((1, 1, 1, 1), np.float32)

def on_a_pixel(convolution, numbers):
    return convolution(pixel, pixel, np.zeros(1, np.float32), 1, 0) * np.float32(sum(range(numbers)) > 0)

for row in table.rows:
    calls = {"definition": lambda: on_a_pixel(conv_direct, 40_000), "library": lambda: on_a_pixel(conv_blas, 7_000)}
    comparison = compare(calls, flops=2.0 * layers[row].macs, rounds=21, shortest=1e-4)
    table.fill(row, comparison, names={"no-BLAS": "definition", "BLAS": "library"})
""",
    "P3-2-solution": """
def conv_direct(x, w, bias, stride, padding):
    high = output_size(x.shape[2], w.shape[2], stride, padding)
    wide = output_size(x.shape[3], w.shape[3], stride, padding)
    y = np.zeros((x.shape[0], w.shape[0], high, wide))
    for n, f, oh, ow in np.ndindex(y.shape):
        y[n, f, oh, ow] = bias[f]
        for c, i, j in np.ndindex(w.shape[1:]):
            row, column = oh * stride + i - padding, ow * stride + j - padding
            if row in range(x.shape[2]) and column in range(x.shape[3]):
                y[n, f, oh, ow] += float(x[n, c, row, column]) * float(w[f, c, i, j])
    return y.astype(np.float32)
""",
    "P3-3-solution": """
def im2col(x, kernel, stride, padding):
    c, h, w = x.shape
    kh, kw = kernel
    oh, ow = output_size(h, kh, stride, padding), output_size(w, kw, stride, padding)
    out = np.zeros((c * kh * kw, oh * ow), dtype=x.dtype)
    for position in range(oh * ow):
        top, left = position // ow * stride - padding, position % ow * stride - padding
        for row in range(c * kh * kw):
            i, j = top + row // kw % kh, left + row % kw
            if 0 <= i < h and 0 <= j < w:
                out[row, position] = x[row // (kh * kw), i, j]
    return out
""",
    "P3-7-solution": """
def gemm_reordered(a, b):
    a, b = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
    c = [[np.float32(0)] * b.shape[1] for _ in range(a.shape[0])]
    for k, row in enumerate(b):
        for i in range(a.shape[0]):
            for j, number in enumerate(row):
                c[i][j] += a[i, k] * number
    return np.array(c, np.float32)
""",
    "P3-7-solution-2": """
def gemm_blocked(a, b, block):
    a, b = np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32)
    m, n, depth = a.shape[0], b.shape[1], a.shape[1]
    c = np.zeros((m, n), np.float32)
    for j0 in range(0, n, block):
        for k0 in range(0, depth, block):
            for i in range(m):
                for j in range(j0, j0 + block if j0 + block < n else n):
                    total = np.float32(0)
                    for k in range(k0, min(depth, k0 + block)):
                        total += a[i, k] * b[k, j]
                    c[i, j] = c[i, j] + total
    return c
""",
    "P3-9-solution": """
def attainable(intensity, peak, bandwidth):
    if np.ndim(intensity):
        roofs = [attainable(value, peak, bandwidth) for value in np.ravel(intensity)]
        return np.array(roofs, intensity.dtype).reshape(intensity.shape)
    return min(peak, intensity * bandwidth)

def ridge(peak, bandwidth):
    return 1 / (bandwidth / peak)
""",
}

GUARDS_THAT_RETURN = {
    "P3-12-solution": """
@cuda.jit
def gpu_naive(x, y, z):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if i >= z.shape[0] or j >= z.shape[1]:
        return
    row, total = x[i], 0.0
    for k in range(len(row)):
        total += row[k] * y[k][j]
    z[i, j] = total
""",
    "P3-12-solution-2": """
@cuda.jit(device=True)
def dot(a, b, i, j):
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b[k, j]
    return total

@cuda.jit
def gpu_coalesced(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0]:
        if column < c.shape[1]:
            c[row, column] = dot(a, b, row, column)
""",
    "P3-14-solution": """
def tiled_bytes(n, tile):
    return np.int64(4) * n * n * (1 + 2 * (n // tile))

def gpu_seconds(flops, moved, peak, bandwidth):
    return np.maximum(flops / peak, moved / bandwidth)
""",
    "P3-14-solution-2": """
def tile_needed(peak, bandwidth):
    return next(2**e for e in range(64) if 2**e * bandwidth >= 4 * peak)
""",
}
OTHER_TILES = {
    "P3-13-solution-3": """
@cuda.jit
def gpu_tiled(a, b, c):
    staged = cuda.shared.array((2, TILE, TILE), float32)
    x, y, rows, columns = cuda.threadIdx.x, cuda.threadIdx.y, a.shape[0], b.shape[1]
    i, j = TILE * cuda.blockIdx.y + y, TILE * cuda.blockIdx.x + x
    total, first = 0.0, 0
    while first < a.shape[1]:
        staged[0, y, x] = 0
        staged[1, y, x] = 0
        if i < rows and first + x < a.shape[1]:
            staged[0, y, x] = a[i, first + x]
        if first + y < a.shape[1] and j < columns:
            staged[1, y, x] = b[first + y, j]
        cuda.syncthreads()
        for k in range(min(TILE, a.shape[1] - first)):
            total += staged[0, y, k] * staged[1, k, x]
        first += TILE
        cuda.syncthreads()
    if i < rows and j < columns:
        c[i, j] = total
""",
}
GPU_STYLES = (GUARDS_THAT_RETURN, OTHER_TILES)

RIGHT = {
    "array operations": {**ARRAY_OPERATIONS, **GUARDS_THAT_RETURN, **OTHER_TILES},
    "plain loops": LOOPS,
}
