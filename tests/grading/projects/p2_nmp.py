"""Right and wrong solutions of P2.12 to P2.14: slices for the neural processor, their cost, and the fewest cycles."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes

BYTES = """
def slice_bytes(layer, cut, element):
    '''Bytes of input, weights and output of the largest slice.'''
    rows, columns, filters, channels = (cut[name] for name in ("rows", "columns", "filters", "channels"))
    kernel, stride = layer["kernel"], layer["stride"]
    read_rows = min((rows - 1) * stride + kernel, layer["height"])
    read_columns = min((columns - 1) * stride + kernel, layer["width"])
    wide = 4 if channels < layer["channels"] else 1
    return {
        "input": channels * read_rows * read_columns * element,
        "weights": filters * (4 + channels * kernel * kernel * element),
        "output": filters * rows * columns * element * wide,
    }
"""
FITTING = """
def fitting(layer, blob, element):
    '''A cut whose slices fit, and that moves few bytes.'''
    side = lambda name: (layer[name] + 2 * layer["pad"] - layer["kernel"]) // layer["stride"] + 1
    height, width = side("height"), side("width")
    lengths = {"rows": height, "columns": width, "filters": layer["filters"], "channels": layer["channels"]}
    sizes = [sorted({-(-length // parts) for parts in range(1, length + 1)}) for length in lengths.values()]
    best, least = None, float("inf")
    for size in itertools.product(*sizes):
        cut = dict(zip(lengths, size))
        needed = slice_bytes(layer, cut, element)
        moved = math.prod(-(-lengths[name] // cut[name]) for name in cut) * (needed["input"] + needed["weights"])
        if max(needed.values()) <= blob and moved < least:
            best, least = cut, moved
    return best
"""
MOVED = """
def bytes_moved(layer, cut, order):
    '''Bytes moved by the program of one order.'''
    rows, columns = ((layer[side] - layer["kernel"]) // layer["stride"] + 1 for side in ("height", "width"))
    pixels, (filters, channels) = rows // cut["rows"], (layer[name] // cut[name] for name in ("filters", "channels"))
    read = ((cut["rows"] - 1) * layer["stride"] + layer["kernel"]) * layer["width"] * cut["channels"]
    weights, bias = cut["filters"] * cut["channels"] * layer["kernel"] ** 2, 4 * cut["filters"]
    images = {"output": pixels * filters * channels, "weight": pixels * filters * channels, "input": pixels * channels}
    kernels = {"output": pixels * filters, "weight": filters, "input": pixels * filters}
    loaded = images[order] * read + kernels[order] * (channels * weights + bias)
    accumulators = 0 if order == "output" else 2 * (channels - 1) * 4
    return loaded + pixels * filters * cut["filters"] * cut["rows"] * columns * (1 + accumulators)
"""
CLIPPED = BYTES.replace(
    """    read_rows = min((rows - 1) * stride + kernel, layer["height"])
    read_columns = min((columns - 1) * stride + kernel, layer["width"])
""",
    """    def most_read(size, length):
        outputs = (length + 2 * layer["pad"] - kernel) // stride + 1
        starts = [first * stride - layer["pad"] for first in range(0, outputs, size)]
        ends = [(min(first + size, outputs) - 1) * stride - layer["pad"] + kernel for first in range(0, outputs, size)]
        return max(min(end, length) - max(start, 0) for start, end in zip(starts, ends))
    read_rows, read_columns = most_read(rows, layer["height"]), most_read(columns, layer["width"])
""",
)
SPLIT = "# ---"
PREDICT = """
def predict(layer, cut, order, machine):
    '''Bytes moved and cycles taken by the serial program of one order.'''
    rows, columns = ((layer[side] - layer["kernel"]) // layer["stride"] + 1 for side in ("height", "width"))
    slices = rows // cut["rows"] * (layer["filters"] // cut["filters"]) * (layer["channels"] // cut["channels"])
    pixels, filters, lanes = cut["rows"] * columns, cut["filters"], machine["lanes"]
    steps = min(pixels * -(-filters // lanes), filters * -(-pixels // lanes))
    compute = slices * cut["channels"] * layer["kernel"] ** 2 * steps
    moved = bytes_moved(layer, cut, order)
    return {"bytes": moved, "cycles": moved * machine["byte_cycles"] + compute + (slices + 1) * machine["latency"]}
"""


def changed(source: str, *pairs: tuple[str, str]) -> str:
    """Return a source with parts replaced, each of which it must have."""
    for before, after in pairs:
        if before not in source:
            raise ValueError(before)
        source = source.replace(before, after)
    return source


def sizes(*pairs: tuple[str, str]) -> dict[str, str]:
    """Wrong bytes, and cuts by right ones."""
    own = changed(BYTES, ("def slice_bytes", "def right_bytes")) + changed(FITTING, ("slice_bytes(", "right_bytes("))
    return {"P2-12-solution": changed(BYTES, *pairs), "P2-12-solution-2": own}


def prediction(*pairs: tuple[str, str]) -> dict[str, str]:
    """Return the cells of P2.13 with parts replaced."""
    moved, _, predict = changed(MOVED + SPLIT + PREDICT, *pairs).partition(SPLIT)
    return {"P2-13-solution": moved, "P2-13-solution-2": predict}


def best(size: str) -> dict[str, str]:
    """The fewest cycles over some cuts of an output of this size."""
    return {
        "P2-14-solution": f"""
def fastest(layer):
    stage, machine, found = convolution(**layer), default_machine(), []
    height, width = {size}
    for tiles, tilelets in ((4, 8), (2, 8), (1, 8), (1, 1)):
        filters = -(-layer["filters"] // (tiles * tilelets))
        for rows, channels in itertools.product((height, -(-height // 4), 2, 1), (layer["channels"], 16, 8, 4)):
            cut = Slicing(rows, width, filters, channels, "output", tiles, tilelets, True)
            if first_misfit(stage, cut, machine) is None:
                found.append((time_program(convolution_program(stage, cut, machine)).cycles, cut))
    return asdict(min(found, key=lambda pair: pair[0])[1])
"""
    }


HALO, BIAS, WIDE = "input_slices_have_a_halo", "weights_come_with_their_bias", "partial_sums_are_wide"
FIT, TINY, FEW = "slices_fit_their_blobs", "slices_are_not_tiny", "slices_move_few_bytes"
OUTPUT, WEIGHT, INPUT = "output_stationary_bytes", "weight_stationary_bytes", "input_stationary_bytes"
CYCLES = "cycles_are_predicted"
GREEDY, HALF, CLOSE = "not_slower_than_greedy", "half_of_the_way", "close_to_the_search"
ORDERS = (OUTPUT, WEIGHT, INPUT, CYCLES)

WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.12",
        ("a bias in elements", sizes(("filters * (4 +", "filters * (element +")), BIAS, "always int32"),
        ("sums are elements", sizes(("wide = 4 if", "wide = 1 if")), WIDE, "sums are incomplete"),
        (
            "without a halo",
            sizes(
                ('min((rows - 1) * stride + kernel, layer["height"])', 'min(rows * stride, layer["height"])'),
                ('min((columns - 1) * stride + kernel, layer["width"])', 'min(columns * stride, layer["width"])'),
            ),
            HALO,
            "the windows of a slice span",
        ),
        ("what is read of the image", {"P2-12-solution": CLIPPED}, (HALO, FIT, TINY, FEW), "fewer"),
        (
            "larger than the output",
            {
                "P2-12-solution-2": changed(
                    FITTING, ('(layer[name] + 2 * layer["pad"] - layer["kernel"])', '(layer[name] + 2 * layer["pad"])')
                )
            },
            (FIT, TINY, FEW),
            "larger than its layer",
        ),
    ),
    *mistakes(
        "P2.13",
        (
            "the bias with every slice of channels",
            prediction(("channels * weights + bias", "channels * (weights + bias)")),
            ORDERS,
            "The bias comes once",
        ),
        (
            "accumulators go one way",
            prediction(("2 * (channels - 1)", "(channels - 1)")),
            (WEIGHT, INPUT, CYCLES),
            "how often do the accumulators",
        ),
        (
            "without halos",
            prediction(('(cut["rows"] - 1) * layer["stride"] + layer["kernel"]', 'cut["rows"] * layer["stride"] + 1')),
            ORDERS,
            "with its halo",
        ),
        (
            "no multiplier is idle",
            prediction(("-(-pixels // lanes)", "pixels / lanes"), ("-(-filters // lanes)", "filters / lanes")),
            CYCLES,
            "no integer in `cycles`",
        ),
        (
            "a last group of multipliers is left out",
            prediction(("-(-pixels // lanes)", "pixels // lanes"), ("-(-filters // lanes)", "filters // lanes")),
            CYCLES,
            "how many multipliers are idle",
        ),
    ),
    *mistakes(
        "P2.14",
        (
            "one tilelet",
            {
                "P2-14-solution": "def fastest(layer):\n"
                "    return {'rows': 2, 'columns': 2, 'filters': layer['filters'], 'channels': 8, 'order': 'output'}"
            },
            (GREEDY, HALF, CLOSE),
            "how many of the 32 tilelets",
        ),
        (
            "larger than a blob",
            {
                "P2-14-solution": "def fastest(layer):\n"
                "    return dict(rows=99, columns=99, filters=99, channels=999, order='output')"
            },
            (GREEDY, HALF, CLOSE),
            "of `fastest` is invalid",
        ),
        (
            "the compiler's own search",
            {
                "P2-14-solution": "from mlhood.compiler.backends.nmp.codegen.search import search as found\n"
                "def fastest(layer):\n    return asdict(found((convolution(**layer),), default_machine()).slicing)"
            },
            (GREEDY, HALF, CLOSE),
            "is not available where this is graded",
        ),
    ),
)

ARRAY_OPERATIONS = {
    "P2-12-solution": """
def slice_bytes(layer, cut, element):
    span = (np.array([cut["rows"], cut["columns"]]) - 1) * layer["stride"] + layer["kernel"]
    read = np.minimum(span, [layer["height"], layer["width"]])
    sums = 4 * element if cut["channels"] < layer["channels"] else element
    weights = np.full((cut["filters"], cut["channels"] * layer["kernel"] ** 2), element)
    return dict(
        input=element * cut["channels"] * read.prod(),
        weights=weights.sum() + 4 * len(weights),
        output=np.prod([cut[name] for name in ("rows", "columns", "filters")]) * sums,
    )
""",
    "P2-13-solution-2": """
def predict(layer, cut, order, machine):
    k, s = layer["kernel"], layer["stride"]
    rows, width = (layer["height"] - k) // s + 1, (layer["width"] - k) // s + 1
    p, f, c = rows // cut["rows"], layer["filters"] // cut["filters"], layer["channels"] // cut["channels"]
    x = cut["channels"] * layer["width"] * ((cut["rows"] - 1) * s + k)
    w, b = cut["filters"] * cut["channels"] * k * k, 4 * cut["filters"]
    y = cut["filters"] * cut["rows"] * width
    times = {"output": (p * f * c, p, 0), "weight": (p * f * c, 1, 1), "input": (p * c, p, 1)}[order]
    total = np.dot([times[0], times[1] * f, times[2] * p * f * (c - 1), p * f], [x, c * w + b, 8 * y, y])
    pixels = cut["rows"] * width
    idle = min(np.ceil(cut["filters"] / machine["lanes"]) * pixels, np.ceil(pixels / machine["lanes"]) * cut["filters"])
    one = cut["channels"] * k * k * idle + machine["latency"]
    cycles = total * machine["byte_cycles"] + p * f * c * one + machine["latency"]
    return {"bytes": int(total), "cycles": int(cycles)}
""",
}

LOOPS = {
    "P2-12-solution-2": """
def fitting(layer, blob, element):
    side = lambda n: (n + 2 * layer["pad"] - layer["kernel"]) // layer["stride"] + 1
    full = [side(layer["height"]), side(layer["width"]), layer["filters"], layer["channels"]]
    names, found = ["rows", "columns", "filters", "channels"], []
    for a in sorted({-(-full[0] // n) for n in range(1, full[0] + 1)}):
        for b in sorted({-(-full[1] // n) for n in range(1, full[1] + 1)}):
            for c in sorted({-(-full[2] // n) for n in range(1, full[2] + 1)}):
                for d in sorted({-(-full[3] // n) for n in range(1, full[3] + 1)}):
                    cut = dict(zip(names, (a, b, c, d)))
                    need = slice_bytes(layer, cut, element)
                    if max(need.values()) > blob:
                        continue
                    count = 1
                    for name, whole in zip(names, full):
                        count *= (whole + cut[name] - 1) // cut[name]
                    found.append((count * (need["input"] + need["weights"]), a, b, c, d))
    return dict(zip(names, min(found)[1:]))
""",
    "P2-14-solution": """
def fastest(layer):
    stage, machine, found = convolution(**layer), default_machine(), []
    for groups in ((4, 8), (1, 8), (2, 8), (4, 4), (1, 2), (1, 1)):
        share = max(1, layer["filters"] // (groups[0] * groups[1]))
        for rows in (stage.out_height, -(-stage.out_height // 2), -(-stage.out_height // 4), 2, 1):
            for channels in {layer["channels"], layer["channels"] // 2, 16, 8, 4}:
                for twice in (False, True):
                    slicing = Slicing(rows, stage.out_width, share, channels, "output", *groups, twice)
                    if first_misfit(stage, slicing, machine) is None:
                        cycles = time_program(convolution_program(stage, slicing, machine)).cycles
                        found.append((cycles, len(found), asdict(slicing)))
    return min(found)[2]
""",
}

ONE_LINERS = {
    "P2-12-solution": """
def slice_bytes(layer, cut, element):
    read = lambda n, length: min(layer["kernel"] + layer["stride"] * (cut[n] - 1), layer[length])
    return {
        "output": np.prod([cut[n] for n in cut if n != "channels"]) * element
        * [4, 1][cut["channels"] == layer["channels"]],
        "weights": cut["filters"] * 4 + cut["filters"] * cut["channels"] * layer["kernel"] ** 2 * element,
        "input": element * cut["channels"] * read("rows", "height") * read("columns", "width"),
    }
""",
}
