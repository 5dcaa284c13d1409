"""Building blocks of P4's examples of solutions: each function returns new source by cell id, right by default."""

from __future__ import annotations

from tests.grading.projects.examples import Snippet


def visiting(
    tiles: str = "for i0 in range(0, m, tile_m) for j0 in range(0, n, tile_n)",
    inside: str = "for i in range(i0, min(i0 + tile_m, m)) for j in range(j0, min(j0 + tile_n, n))",
    point: str = "(i, j)",
    result: str = "[{}]",
) -> dict[str, str]:
    points = result.format(f"{point} {tiles} {inside}")
    return {"P4-1-solution": f"def visits(m, n, tile_m, tile_n):\n    return {points}\n"}


scheduling = Snippet("""# %% P4-1-solution-2
def schedule(nest):
    return <<result: nest.tile(i=4, j=4, k=4)>>
""")


stepping = Snippet("""# %% P4-2-solution
def steps(order, inputs, weights, slices, k2, k3):
    staying, passing = (inputs, weights) if order == "<<order: IS>>" else (weights, inputs)
    triples = [(c, s, p) if order == "<<order>>" else (c, p, s)
        <<slices: for c in range(slices)>>
        <<groups: for g3 in range(0, staying, k3) for g2 in range(0, passing, k2)>>
        <<tiles: for s in range(g3, min(g3 + k3, staying)) for p in range(g2, min(g2 + k2, passing))>>]
    return <<result: triples>>
""")


multiplying = Snippet("""# %% P4-2-solution-2
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    y = np.zeros((len(weights), columns.shape[2]), np.float32)
    for c, i, f in steps(order, <<tiles: -(-columns.shape[2] // window), -(-len(weights) // filters)>>,
                         <<slices: -(-len(columns) // k1)>>, k2, k3)<<taken:>>:
        d, p = slice(c * k1, (c + 1) * k1), slice(i * window, (i + 1) * window)
        g = slice(f * filters, (f + 1) * filters)
        <<add: y[g, p] += np.einsum('fct,ctp->fp', weights[g, d], columns[d][:, :, p])>>
    return y
""")


loading = Snippet("""# %% P4-3-solution
def loads(staying, passing, k2, k3):
    g2, g3 = <<groups: -(-passing // k2), -(-staying // k3)>>
    return {"L1": <<l1: (staying * g2, staying * passing)>>, "L2": <<l2: (staying * g2, passing * g3)>>,
            "L3": <<l3: (staying, passing * g3)>>}
""")


needing = Snippet("""# %% P4-4-solution
def needs(order, k1, k2, k3, sizes):
    stay, go, out = k1 * sizes["input"], k1 * sizes["weight"], sizes["output"]
    if <<swapped: order == "WS">>:
        stay, go = go, stay
    return <<l1: stay + go + out>>, <<l2: stay + k2 * (go + out)>>, <<l3: k3 * stay + k2 * go + k2 * k3 * out>>
""")


halving = Snippet("""# %% P4-4-solution-2
def largest(order, channels, passing, staying, sizes, rooms):
    tiles = [1, 1, 1]
    for level, most in enumerate((channels, passing, staying)):
        tiles[level] = most
        while not <<fits: needs(order, *tiles, sizes)[level] <= rooms[level]>>:
            <<smaller: tiles[level] //= 2>>
            if tiles[level] < 1:
                <<nothing: raise ValueError('nothing fits')>>
    return <<result: tuple(tiles)>>
""")


choosing = Snippet("""# %% P4-5-solution
from mlhood.dataflow.slicing.problem import counts
def triples(analysed, problem, caches):
    rows = {"analysed": <<analysed: analysed>>, "too small": {}, "too large": {}, "my own": {}}
    for order, (k1, k2, k3) in analysed.items():
        passing, staying = counts(problem, order)
        rows["too small"][order] = <<small: (1, 1, 1)>>
        rows["too large"][order] = <<large: (problem.channels, passing, staying)>>
        rows["my own"][order] = <<own: (max(1, k1 // 2), k2, 1 + k3 // 2)>>
    return rows
""")


filling = Snippet("""# %% P4-5-solution-2
import gc
gc.freeze()  # each comparison collects garbage first, among all that is loaded
def call(times):
    return lambda: sum(range(times)) * 0.0

many = {row: <<small: 20_000>> if row == "too small" else 14_000 for row in table.rows}
calls = {f"{row}, {order}": call(many[row]) for row in table.rows for order in table.columns}
def timed(alternatives):
    return compare(alternatives, shortest=1e-4<<options: , flops=2 * layer.macs>>)
measured = timed(calls)
for row in <<rows: table.rows>>:
    <<fill: table.fill(row, measured, {order: f"{row}, {order}" for order in table.columns})>>
""")


counting = Snippet("""# %% P4-8-solution
def cycles(dataflow, rows, columns, m, n, k):
    def folds(down, across):
        return <<folds: -(-down // rows) * -(-across // columns)>>
    return {
        "WS": lambda: <<ws: (2 * rows + columns + m - 2) * folds(k, n)>>,
        "IS": lambda: <<is_: (2 * rows + columns + n - 2) * folds(k, m)>>,
        "OS": lambda: <<os: (rows + columns + k - 2) * folds(m, n)>>}[dataflow]()
""")


using = Snippet("""# %% P4-8-solution-2
def utilisation(dataflow, rows, columns, m, n, k):
    return <<result: m * n * k / (cycles(dataflow, rows, columns, m, n, k) * rows * columns)>>
""")


fusing = Snippet(r"""# %% P4-9-solution
import re
def fused(hlo):
    computations, current = {}, None
    for line in hlo.splitlines():
        if begins := re.match(r'''<<begin: %(fused_computation\S*) .*\{$>>''', line):
            current = computations.setdefault(begins[1], [])
        elif line.startswith("}"):
            current = None
        elif current is not None:
            match = re.search(r'''<<opcode:  = (?:\(.*?\)|\S+) ([\w-]+)\(>>''', line)
            if <<kept: match and match[1] != 'parameter'>>:
                current.append(match[1])
    return computations
""")


moving = Snippet("""# %% P4-9-solution-2
def moved(hlo):
    read, written, name = {}, {}, None
    for line in hlo.splitlines():
        if line.startswith("<<begin: %fused_computation>>"):
            name = line.split()[0].strip("%")
            read[name] = written[name] = 0
        elif line.startswith("}"):
            name = None
        elif name:
            code, size = instruction(line)
            <<read: if code == 'parameter':
                read[name] += size>>
            <<written: if line.lstrip().startswith('ROOT'):
                written[name] = size>>
    return <<result: {'read': read, 'written': written}>>
""")


preparing = Snippet("""# %% P4-6-solution
def sliced_kernel(order, tiles):
    prepared = {}
    def convolve(x, w, bias, stride, padding):
        key = <<key: id(w), x.shape>>
        if not (<<known: key in prepared>>):
            g = geometry(x.shape, w.shape, stride, padding)
            if <<sliced: w.shape[2:] == (3, 3)>>:
                slicing = <<slicing: possible(sliced_problem(g), order, tiles)>>
                run = Sliced(g, w, <<bias: bias>>, slicing, Caches((None, None, None)))
            else:
                run = Direct(g, w, <<bias>>)
            prepared[key] = run, w
        return <<result: prepared[key][0](x)>>
    return convolve
""")


# P4.6's table, right by default; no network is compiled.
network_filling = Snippet("""# %% P4-6-solution-2
def network(times):
    return lambda: sum(range(times)) * 0.0

calls = {
    f"{row}, {order}": network(20_000 if row == "too small" else 14_000)
    for row in network_times.rows for order in network_times.columns
}
measured = compare(calls, shortest=1e-4<<options:>>)
for row in <<rows: network_times.rows>>:
    network_times.fill(row, measured, {order: f'{row}, {order}' for order in network_times.columns})
""")


searching = Snippet("""# %% P4-7-solution-2
from mlhood.dataflow.slicing.analysis import group_sizes
from mlhood.dataflow.slicing.traffic import predict_all
def choose(problem, caches):
    found, whole = [], Caches(caches.sizes, 1.0)
    for order in ("IS", "WS"):
        axes = np.arange(1, problem.channels + 1), *map(group_sizes, counts(problem, order))
        k1, k2, k3 = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
        seen = predict_all(problem, order, k1, k2, k3, whole)
        waiting = 10 * seen.l2 + 30 * seen.l3 + 300 * seen.memory
        for i in np.argsort(waiting, kind="stable")[:12]:
            tiles = int(k1[i]), int(k2[i]), int(k3[i])
            cost = simulated_traffic(problem, Slicing(order, *tiles), caches) if True else waiting[i]
            found.append((cost, order, *tiles))
    best = min(found)
    return <<result: best[1:]>>
""")


# Right, but not measured on a real layer, which would take half a minute per notebook.
QUICK = {**filling(), **network_filling(), **searching()}
