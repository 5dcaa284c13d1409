"""Right solutions of P4 in styles other than the source notebook's."""

from __future__ import annotations

LOOPS = {
    "P4-1-solution": """
def visits(m, n, tile_m, tile_n):
    points = []
    for i0 in range(0, m, tile_m):
        for j0 in range(0, n, tile_n):
            for i in range(tile_m):
                for j in range(tile_n):
                    if i0 + i < m and j0 + j < n:
                        points.append((i0 + i, j0 + j))
    return points
""",
    "P4-1-solution-2": """
def schedule(nest):
    for name in ("i", "j", "k"):
        nest = nest.split(name, 4)
    return nest.reorder("k_o", "j_o", "i_o", "j_i", "k_i", "i_i")
""",
    "P4-2-solution": """
def steps(order, inputs, weights, slices, k2, k3):
    staying, passing = inputs, weights
    if order == "WS":
        staying, passing = weights, inputs
    result = []
    for c in range(slices):
        for stay_group in range(-(-staying // k3)):
            for pass_group in range(-(-passing // k2)):
                for stay in range(stay_group * k3, stay_group * k3 + k3):
                    if stay >= staying:
                        break
                    for go in range(pass_group * k2, pass_group * k2 + k2):
                        if go < passing:
                            result.append((c, stay, go) if order == "IS" else (c, go, stay))
    return result
""",
    "P4-2-solution-2": """
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    C, T, P = columns.shape
    F = weights.shape[0]
    y = [[0.0] * P for _ in range(F)]
    for c, i, f in steps(order, (P + window - 1) // window, (F + filters - 1) // filters, (C + k1 - 1) // k1, k2, k3):
        for row in range(f * filters, min(F, (f + 1) * filters)):
            for column in range(i * window, min(P, (i + 1) * window)):
                for channel in range(c * k1, min(C, (c + 1) * k1)):
                    for t in range(T):
                        y[row][column] += float(weights[row, channel, t]) * float(columns[channel, t, column])
    return np.array(y, np.float32)
""",
    "P4-3-solution": """
def loads(staying, passing, k2, k3):
    counts = {"L1": [0, 0], "L2": [0, 0], "L3": [0, 0]}
    for g3 in range(0, staying, k3):
        counts["L3"][0] += min(k3, staying - g3)
        for g2 in range(0, passing, k2):
            width = min(k2, passing - g2)
            counts["L3"][1] += width
            counts["L2"][1] += width
            for stay in range(g3, min(g3 + k3, staying)):
                counts["L2"][0] += 1
                counts["L1"][0] += 1
                counts["L1"][1] += width
    return {level: tuple(pair) for level, pair in counts.items()}
""",
    "P4-3-solution-2": """
def duration(reads, reading, multiplying, waiting):
    if reads * reading < multiplying:
        return multiplying + waiting * reads * reading
    return reads * reading + waiting * multiplying
""",
    "P4-4-solution": """
def needs(order, k1, k2, k3, sizes):
    first, second = k1 * sizes["input"], k1 * sizes["weight"]
    output = sizes["output"]
    if order == "IS":
        return first + second + output, first + k2 * (second + output), k3 * first + k2 * second + k2 * k3 * output
    return first + second + output, k2 * (first + output) + second, k2 * first + k3 * second + k2 * k3 * output
""",
    "P4-4-solution-2": """
def largest(order, channels, passing, staying, sizes, rooms):
    k1 = channels
    while k1 and needs(order, k1, 1, 1, sizes)[0] > rooms[0]:
        k1 = k1 // 2
    k2 = passing if k1 else 0
    while k2 and needs(order, k1, k2, 1, sizes)[1] > rooms[1]:
        k2 = k2 // 2
    k3 = staying if k2 else 0
    while k3 and needs(order, k1, k2, k3, sizes)[2] > rooms[2]:
        k3 = k3 // 2
    if not k3:
        raise ValueError("the smallest tiles do not fit")
    return k1, k2, k3
""",
    "P4-5-solution": """
def triples(analysed, problem, caches):
    rows = {name: {} for name in ("analysed", "too small", "too large", "my own")}
    for order in ("WS", "IS"):
        passing = problem.input_tiles if order == "WS" else problem.weight_tiles
        staying = problem.weight_tiles if order == "WS" else problem.input_tiles
        rows["analysed"][order] = tuple(analysed[order])
        rows["too small"][order] = (1, 1, 1)
        rows["too large"][order] = (problem.channels, passing, staying)
        rows["my own"][order] = (1, 2, 1) if analysed[order] != (1, 2, 1) else (1, 1, 2)
    return rows
""",
    "P4-6-solution": """
class Sliced3x3:
    def __init__(self, order, tiles):
        self.order, self.tiles, self.layers = order, tiles, []

    def __call__(self, x, w, bias, stride, padding):
        for known, shape, run in self.layers:
            if known is w and shape == x.shape:
                return run(x)
        g = geometry(x.shape, w.shape, stride, padding)
        if w.shape[2] != 3 or w.shape[3] != 3:
            run = Direct(g, w, bias)
        else:
            run = Sliced(g, w, bias, caches=Caches((None, None, None)))
            run = run.sliced_as(possible(run.problem, self.order, self.tiles))
        self.layers.append((w, x.shape, run))
        return run(x)

def sliced_kernel(order, tiles):
    return Sliced3x3(order, tiles)
""",
    "P4-7-solution-2": """
from mlhood.dataflow.slicing.traffic import predict_all
def choose(problem, caches):
    whole = Caches(caches.sizes, 1.0)
    best = None
    for order in ["WS", "IS"]:
        streamed, stationary = counts(problem, order)
        k1 = np.arange(1, problem.channels + 1)[:, None, None]
        k2, k3 = np.array(group_sizes(streamed))[:, None], np.array(group_sizes(stationary))
        seen = predict_all(problem, order, k1, k2, k3, whole)
        waiting = 10 * seen.l2 + 30 * seen.l3 + 300 * seen.memory
        for place in np.argsort(waiting, axis=None, kind="stable")[:14]:
            a, b, c = np.unravel_index(place, waiting.shape)
            tiles = int(k1[a, 0, 0]), k2[b, 0], k3[c]
            traffic = simulated_traffic(problem, Slicing(order, *map(int, tiles)), caches)
            if best is None or traffic < best[0]:
                best = traffic, order, tiles
    return (best[1], *best[2])
""",
    "P4-8-solution": """
def cycles(dataflow, rows, columns, m, n, k):
    total = 0
    down, across, steps = {"WS": (k, n, m), "IS": (k, m, n), "OS": (m, n, k)}[dataflow]
    for _ in range(0, down, rows):
        for _ in range(0, across, columns):
            total += rows + columns + steps - 2 + (0 if dataflow == "OS" else rows)
    return total
""",
    "P4-9-solution": """
def fused(hlo):
    computations, name = {}, None
    for line in hlo.splitlines():
        if line.startswith("%") and line.endswith("{"):
            name = line.split()[0][1:]
            if name.startswith("fused_computation"):
                computations[name] = []
        elif line.startswith("}"):
            name = None
        elif name in computations:
            code = next(word.split("(")[0] for word in line.split() if word[0].isalpha() and word.find("(") > 0)
            if code != "parameter":
                computations[name].append(code)
    return computations
""",
    "P4-9-solution-2": """
def moved(hlo):
    read, written, inside = {}, {}, None
    for line in hlo.split("\\n"):
        if line.startswith("%"):
            inside = line.split()[0][1:]
        elif line.startswith("}"):
            inside = None
        elif inside and inside.startswith("fused_computation") and " = " in line:
            code, size = instruction(line)
            read[inside] = read.get(inside, 0) + (size if code == "parameter" else 0)
            if "ROOT" in line:
                written[inside] = size
    return {"read": read, "written": written}
""",
}

ARRAYS = {
    "P4-1-solution": """
def visits(m, n, tile_m, tile_n):
    i, j = np.indices((m, n)).reshape(2, -1)
    order = np.lexsort((j, i, j // tile_n, i // tile_m))
    return list(zip(i[order], j[order]))
""",
    "P4-1-solution-2": """
schedule = lambda nest: nest.tile(k=4, j=4, i=4).reorder("j_o", "k_o", "i_o", "k_i", "i_i", "j_i")
""",
    "P4-2-solution": """
def steps(order, inputs, weights, slices, k2, k3):
    c, i, f = np.indices((slices, inputs, weights)).reshape(3, -1)
    stay, go = (i, f) if order == "IS" else (f, i)
    turn = np.lexsort((go, stay, go // k2, stay // k3, c))
    return [tuple(step) for step in np.stack([c, i, f], axis=1)[turn]]
""",
    "P4-2-solution-2": """
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    y = np.zeros((len(weights), columns.shape[-1]))
    counts = [int(np.ceil(size / part)) for size, part in ((columns.shape[2], window), (len(weights), filters),
                                                            (len(columns), k1))]
    for c, i, f in steps(order, *counts, k2, k3):
        input_tile = columns[c * k1:][:k1, :, i * window:(i + 1) * window]
        weight_tile = weights[f * filters:(f + 1) * filters, c * k1:(c + 1) * k1]
        y[f * filters:(f + 1) * filters, i * window:(i + 1) * window] += np.tensordot(weight_tile, input_tile, 2)
    return y.astype(np.float32)
""",
    "P4-3-solution": """
def loads(staying, passing, k2, k3):
    g2, g3 = np.ceil([passing / k2, staying / k3]).astype(np.int64)
    return {"L1": (staying * g2, staying * passing), "L2": (staying * g2, passing * g3), "L3": (staying, passing * g3)}
""",
    "P4-3-solution-2": """
def duration(reads, reading, multiplying, waiting):
    bounds = max(reads * reading, multiplying), reads * reading + multiplying
    return np.interp(waiting, (0, 1), bounds)
""",
    "P4-4-solution": """
def needs(order, k1, k2, k3, sizes):
    stay, go = k1 * np.array([sizes["input"], sizes["weight"]])[::1 if order == "IS" else -1]
    out = sizes["output"]
    return tuple(np.array([[1, 1, 1], [1, k2, k2], [k3, k2, k2 * k3]]) @ [stay, go, out])
""",
    "P4-4-solution-2": """
def largest(order, channels, passing, staying, sizes, rooms):
    tiles = np.array([1, 1, 1])
    for level, most in enumerate([channels, passing, staying]):
        for candidate in [most >> shift for shift in range(int(most).bit_length())]:
            tiles[level] = candidate
            if np.asarray(needs(order, *tiles, sizes))[level] <= rooms[level]:
                break
        else:
            raise ValueError(level)
    return tuple(tiles)
""",
    "P4-5-solution": """
from mlhood.dataflow.slicing.analysis import needs as needed
def triples(analysed, problem, caches):
    def grown(order, k1, k2, k3):
        most = (problem.input_tiles, problem.weight_tiles)[::1 if order == "WS" else -1]
        while k1 < problem.channels and needed(problem, order, k1, 1, 1)[0] <= caches.rooms[0]:
            k1 += 1
        return (k1, *most)
    orders = list(analysed)
    return {"my own": {order: tuple(np.array([1, 2, 1])) for order in orders},
            "too small": {order: (np.int64(1), 1, 1) for order in orders},
            "too large": {order: grown(order, *analysed[order]) for order in orders},
            "analysed": {order: tuple(np.array(analysed[order])) for order in orders}, "notes": "none"}
""",
    "P4-8-solution": """
def cycles(dataflow, rows, columns, m, n, k):
    lies = {"WS": [k, n, m], "IS": [k, m, n], "OS": [m, n, k]}[dataflow]
    folds = int(np.ceil(lies[0] / rows) * np.ceil(lies[1] / columns))
    return folds * (rows * (2 - (dataflow == "OS")) + columns + lies[2] - 2)
""",
    "P4-8-solution-2": """
def utilisation(dataflow, rows, columns, m, n, k):
    return np.float64(np.prod([m, n, k]) / (cycles(dataflow, rows, columns, m, n, k) * np.prod([rows, columns])))
""",
    "P4-9-solution": r"""
import re
def fused(hlo):
    parts = re.findall(r"^%(fused_computation[.\d]*) .*?\{\n(.*?)^\}", hlo, re.M | re.S)
    return {name: [code for code in re.findall(r"= (?:\(.*?\)|\S+) ([\w-]+)\(", body) if code != "parameter"]
            for name, body in parts}
""",
    "P4-9-solution-2": r"""
import re
def moved(hlo):
    parts = re.findall(r"^%(fused_computation[.\d]*) .*?\{\n(.*?)^\}", hlo, re.M | re.S)
    lines = {name: [(line, *instruction(line)) for line in body.splitlines()] for name, body in parts}
    return {
        "read": {name: sum(size for _, code, size in found if code == "parameter")
                 for name, found in lines.items()},
        "written": {name: next(size for line, _, size in found if "ROOT %" in line) for name, found in lines.items()},
    }
""",
}

RIGHT = {"plain loops": LOOPS, "array operations": ARRAYS}
