"""Building blocks of P4's examples of solutions: each function returns new source by cell id, right by default."""

from __future__ import annotations

from textwrap import indent


def _function(head: str, body: str) -> str:
    return f"{head}\n{indent(body.strip(), '    ')}\n"


def visiting(
    tiles: str = "for i0 in range(0, m, tile_m) for j0 in range(0, n, tile_n)",
    inside: str = "for i in range(i0, min(i0 + tile_m, m)) for j in range(j0, min(j0 + tile_n, n))",
    point: str = "(i, j)",
    result: str = "[{}]",
) -> dict[str, str]:
    points = result.format(f"{point} {tiles} {inside}")
    return {"P4-1-solution": f"def visits(m, n, tile_m, tile_n):\n    return {points}\n"}


def scheduling(result: str = "nest.tile(i=4, j=4, k=4)") -> dict[str, str]:
    return {"P4-1-solution-2": f"def schedule(nest):\n    return {result}\n"}


def stepping(
    groups: str = "for g3 in range(0, staying, k3) for g2 in range(0, passing, k2)",
    tiles: str = "for s in range(g3, min(g3 + k3, staying)) for p in range(g2, min(g2 + k2, passing))",
    slices: str = "for c in range(slices)",
    order: str = "IS",
    result: str = "triples",
) -> dict[str, str]:
    body = f"""
staying, passing = (inputs, weights) if order == "{order}" else (weights, inputs)
triples = [(c, s, p) if order == "{order}" else (c, p, s) {slices} {groups} {tiles}]
return {result}
"""
    return {"P4-2-solution": _function("def steps(order, inputs, weights, slices, k2, k3):", body)}


def multiplying(
    tiles: str = "-(-columns.shape[2] // window), -(-len(weights) // filters)",
    slices: str = "-(-len(columns) // k1)",
    add: str = "y[g, p] += np.einsum('fct,ctp->fp', weights[g, d], columns[d][:, :, p])",
    taken: str = "",
) -> dict[str, str]:
    body = f"""
y = np.zeros((len(weights), columns.shape[2]), np.float32)
for c, i, f in steps(order, {tiles}, {slices}, k2, k3){taken}:
    d, p, g = slice(c * k1, (c + 1) * k1), slice(i * window, (i + 1) * window), slice(f * filters, (f + 1) * filters)
    {add}
return y
"""
    head = "def sliced_product(columns, weights, order, k1, k2, k3, window, filters):"
    return {"P4-2-solution-2": _function(head, body)}


def loading(
    l1: str = "(staying * g2, staying * passing)",
    l2: str = "(staying * g2, passing * g3)",
    l3: str = "(staying, passing * g3)",
    groups: str = "-(-passing // k2), -(-staying // k3)",
) -> dict[str, str]:
    body = f'g2, g3 = {groups}\nreturn {{"L1": {l1}, "L2": {l2}, "L3": {l3}}}'
    return {"P4-3-solution": _function("def loads(staying, passing, k2, k3):", body)}


def needing(
    l1: str = "stay + go + out",
    l2: str = "stay + k2 * (go + out)",
    l3: str = "k3 * stay + k2 * go + k2 * k3 * out",
    swapped: str = 'order == "WS"',
) -> dict[str, str]:
    body = f"""
stay, go, out = k1 * sizes["input"], k1 * sizes["weight"], sizes["output"]
if {swapped}:
    stay, go = go, stay
return {l1}, {l2}, {l3}
"""
    return {"P4-4-solution": _function("def needs(order, k1, k2, k3, sizes):", body)}


def halving(
    smaller: str = "tiles[level] //= 2",
    fits: str = "needs(order, *tiles, sizes)[level] <= rooms[level]",
    nothing: str = "raise ValueError('nothing fits')",
    result: str = "tuple(tiles)",
) -> dict[str, str]:
    body = f"""
tiles = [1, 1, 1]
for level, most in enumerate((channels, passing, staying)):
    tiles[level] = most
    while not {fits}:
        {smaller}
        if tiles[level] < 1:
            {nothing}
return {result}
"""
    return {"P4-4-solution-2": _function("def largest(order, channels, passing, staying, sizes, rooms):", body)}


def choosing(
    analysed: str = "analysed",
    small: str = "(1, 1, 1)",
    large: str = "(problem.channels, passing, staying)",
    own: str = "(max(1, k1 // 2), k2, 1 + k3 // 2)",
) -> dict[str, str]:
    body = f"""
rows = {{"analysed": {analysed}, "too small": {{}}, "too large": {{}}, "my own": {{}}}}
for order, (k1, k2, k3) in analysed.items():
    passing, staying = counts(problem, order)
    rows["too small"][order] = {small}
    rows["too large"][order] = {large}
    rows["my own"][order] = {own}
return rows
"""
    head = "from mlhood.dataflow.slicing.problem import counts\ndef triples(analysed, problem, caches):"
    return {"P4-5-solution": _function(head, body)}


NAMES = '{order: f"{row}, {order}" for order in table.columns}'


def filling(
    rows: str = "table.rows",
    options: str = ", flops=2 * layer.macs",
    fill: str = f"table.fill(row, measured, {NAMES})",
    small: str = "20_000",
) -> dict[str, str]:
    return {
        "P4-5-solution-2": f"""
import gc
gc.freeze()  # each comparison collects garbage first, among all that is loaded
def call(times):
    return lambda: sum(range(times)) * 0.0

many = {{row: {small} if row == "too small" else 14_000 for row in table.rows}}
calls = {{f"{{row}}, {{order}}": call(many[row]) for row in table.rows for order in table.columns}}
def timed(alternatives):
    return compare(alternatives, shortest=1e-4{options})
measured = timed(calls)
for row in {rows}:
    {fill}
"""
    }


def counting(
    ws: str = "(2 * rows + columns + m - 2) * folds(k, n)",
    is_: str = "(2 * rows + columns + n - 2) * folds(k, m)",
    os: str = "(rows + columns + k - 2) * folds(m, n)",
    folds: str = "-(-down // rows) * -(-across // columns)",
) -> dict[str, str]:
    body = f"""
def folds(down, across):
    return {folds}
return {{"WS": lambda: {ws}, "IS": lambda: {is_}, "OS": lambda: {os}}}[dataflow]()
"""
    return {"P4-8-solution": _function("def cycles(dataflow, rows, columns, m, n, k):", body)}


def using(result: str = "m * n * k / (cycles(dataflow, rows, columns, m, n, k) * rows * columns)") -> dict[str, str]:
    return {"P4-8-solution-2": f"def utilisation(dataflow, rows, columns, m, n, k):\n    return {result}\n"}


def fusing(
    begin: str = r"%(fused_computation\S*) .*\{$",
    opcode: str = r" = (?:\(.*?\)|\S+) ([\w-]+)\(",
    kept: str = "match and match[1] != 'parameter'",
) -> dict[str, str]:
    body = f"""
computations, current = {{}}, None
for line in hlo.splitlines():
    if begins := re.match(r'''{begin}''', line):
        current = computations.setdefault(begins[1], [])
    elif line.startswith("}}"):
        current = None
    elif current is not None:
        match = re.search(r'''{opcode}''', line)
        if {kept}:
            current.append(match[1])
return computations
"""
    return {"P4-9-solution": _function("import re\ndef fused(hlo):", body)}


def moving(
    begin: str = "%fused_computation",
    read: str = "if code == 'parameter':\n            read[name] += size",
    written: str = "if line.lstrip().startswith('ROOT'):\n            written[name] = size",
    result: str = "{'read': read, 'written': written}",
) -> dict[str, str]:
    body = f"""
read, written, name = {{}}, {{}}, None
for line in hlo.splitlines():
    if line.startswith("{begin}"):
        name = line.split()[0].strip("%")
        read[name] = written[name] = 0
    elif line.startswith("}}"):
        name = None
    elif name:
        code, size = instruction(line)
        {read}
        {written}
return {result}
"""
    return {"P4-9-solution-2": _function("def moved(hlo):", body)}


def preparing(
    key: str = "id(w), x.shape",
    sliced: str = "w.shape[2:] == (3, 3)",
    slicing: str = "possible(sliced_problem(g), order, tiles)",
    bias: str = "bias",
    known: str = "key in prepared",
    result: str = "prepared[key][0](x)",
) -> dict[str, str]:
    body = f"""
prepared = {{}}
def convolve(x, w, bias, stride, padding):
    key = {key}
    if not ({known}):
        g = geometry(x.shape, w.shape, stride, padding)
        if {sliced}:
            run = Sliced(g, w, {bias}, {slicing}, Caches((None, None, None)))
        else:
            run = Direct(g, w, {bias})
        prepared[key] = run, w
    return {result}
return convolve
"""
    return {"P4-6-solution": _function("def sliced_kernel(order, tiles):", body)}


def network_filling(
    rows: str = "network_times.rows",
    options: str = "",
) -> dict[str, str]:
    """P4.6's table, right by default; no network is compiled."""
    return {
        "P4-6-solution-2": f"""
def network(times):
    return lambda: sum(range(times)) * 0.0

calls = {{
    f"{{row}}, {{order}}": network(20_000 if row == "too small" else 14_000)
    for row in network_times.rows for order in network_times.columns
}}
measured = compare(calls, shortest=1e-4{options})
for row in {rows}:
    network_times.fill(row, measured, {{order: f'{{row}}, {{order}}' for order in network_times.columns}})
"""
    }


def searching(
    result: str = "best[1:]",
) -> dict[str, str]:
    return {
        "P4-7-solution-2": f"""
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
    return {result}
"""
    }


# Right, but not measured on a real layer, which would take half a minute per notebook.
QUICK = {**filling(), **network_filling(), **searching()}
