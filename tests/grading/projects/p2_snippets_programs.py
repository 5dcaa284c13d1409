"""Building blocks of P2's gallery for P2.9 to P2.11: each function returns new source by cell id."""

from __future__ import annotations

CONV = 'Conv((1, 1), pads, (1, 1), 1, ("Relu",))'
POOL = "MaxPool(kernel, kernel, (0, 0, 0, 0), (1, 1))"
STEPS = (
    "Alloc(conv)",
    f"Compute({CONV}, (conv,), (x, w, b))",
    "TensorView(pooled, y)",
    f"Compute({POOL}, (pooled,), (conv,))",
    "Dealloc(conv)",
)
"""The master's instructions, in their order."""


def by_hand(*steps: str, before: str = "", returned: str = "[{}]") -> dict[str, str]:
    """A program of these instructions, on the buffers `conv` and `pooled`."""
    return {
        "P2-9-solution": f"""
def by_hand(x, w, b, y, pads, kernel):
    conv = Buffer("conv", infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1))
    pooled = Buffer("pooled", infer_pool(conv.type, kernel, kernel, (0, 0, 0, 0)))
    {before}
    return {returned.format(", ".join(steps))}
"""
    }


def ranges(
    buffer: str = "owner.get(buffer, buffer)",
    owner: str = "owner.get(i.source, i.source)",
    skipped: str = "isinstance(buffer, Weight)",
    uses: str = "(*i.writes, *i.reads)",
    pair: str = "(first, number)",
    numbered: str = "enumerate(instructions)",
    before: str = "pass",
) -> dict[str, str]:
    """Live ranges in one loop."""
    return {
        "P2-10-solution": f"""
def live_ranges(instructions):
    owner, found = {{}}, {{}}
    for number, i in {numbered}:
        if isinstance(i, TensorView):
            owner[i.buffer] = {owner}
        for buffer in {uses}:
            {before}
            buffer = {buffer}
            if {skipped}:
                continue
            first = found.get(buffer.name, (number, number))[0]
            found[buffer.name] = {pair}
    return found
"""
    }


def allocator(
    key: str = "-b.bytes",
    alive: str = "o.first <= b.last and b.first <= o.last",
    end: str = "-(-(offsets[o.name] + o.bytes) // alignment) * alignment",
    fits: str = "at + b.bytes <= offsets[o.name]",
    before: str = "pass",
) -> dict[str, str]:
    """Buffers in an order, each at the lowest address where it fits."""
    return {
        "P2-10-solution-2": f"""
def allocate(lifetimes, alignment):
    offsets, placed = {{}}, []
    {before}
    for b in sorted(lifetimes, key=lambda b: {key}):
        at = 0
        for o in sorted((o for o in placed if {alive}), key=lambda o: offsets[o.name]):
            if {fits}:
                break
            at = max(at, {end})
        offsets[b.name] = at
        placed.append(b)
    return offsets
"""
    }


def memory(expression: str) -> dict[str, str]:
    return {
        "P2-11-solution": f"""
def memory(graph):
    constants = sum(value.data.nbytes for value in graph.constants.values())
    program = lower(graph, {{"batch": 1}})
    return {expression}
"""
    }


def latencies(*lines: str) -> dict[str, str]:
    """The loop over the rows of the first table, with these lines in it."""
    body = "\n    ".join(lines)
    return {
        "P2-11-solution-2": f"""
for row, count in IMAGES.items():
    x = data.test_images[:count]
    {body}
latency
"""
    }


def counts(size: str = "memory(graph)", digits: str = "(logits.argmax(1) == data.test_labels).sum()", skip: str = ""):
    """The loop over the stages of the second table."""
    return {
        "P2-11-solution-3": f"""
for name, graph in stages.items():
    if name == {skip!r}:
        continue
    logits = sides[name](data.test_images)
    costs["bytes", name] = Count(int({size}))
    costs["digits", name] = Count(int({digits}))
costs
"""
    }
