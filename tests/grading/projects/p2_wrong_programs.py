"""Typical wrong solutions of P2.9 to P2.11, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.examples import Mistake, mistakes

ACCEPTED, COMPUTED, HELD = "program_is_accepted", "program_computes_both_nodes", "nothing_is_held_too_long"
PROGRAM = (ACCEPTED, COMPUTED, HELD)
RANGES, VIEWS, APART, ALIGNED = (
    "ranges_are_found",
    "views_keep_their_owner_alive",
    "buffers_do_not_overlap",
    "offsets_are_aligned",
)
AGAIN, FILLED, DENSE = "memory_is_used_again", "gaps_are_filled", "hardly_a_byte_is_wasted"
MEMORY, ROWS, COSTS, FASTER = "memory_is_counted", "rows_are_comparisons", "costs_are_counted", "fused_is_faster"
SIDES = "{name: partial(side, x) for name, side in sides.items()}"

CONV = 'Conv((1, 1), pads, (1, 1), 1, ("Relu",))'
POOL = "MaxPool(kernel, kernel, (0, 0, 0, 0), (1, 1))"
STEPS = (
    "Alloc(conv)",
    f"Compute({CONV}, (conv,), (x, w, b))",
    "TensorView(pooled, y)",
    f"Compute({POOL}, (pooled,), (conv,))",
    "Dealloc(conv)",
)


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


ALLOC, CONVOLVE, VIEW, POOLED, FREE = STEPS
WRONG: tuple[Mistake, ...] = (
    *mistakes(
        "P2.9",
        ("nothing is freed", by_hand(ALLOC, CONVOLVE, VIEW, POOLED), PROGRAM, "never deallocated.*conv"),
        ("nothing is allocated", by_hand(CONVOLVE, VIEW, POOLED), PROGRAM, "used before it is allocated.*convolution"),
        (
            "freed before it is pooled",
            by_hand(ALLOC, CONVOLVE, FREE, VIEW, POOLED),
            PROGRAM,
            "used after its memory was deallocated.*maxpool",
        ),
        (
            "the ReLU is forgotten",
            by_hand(
                ALLOC,
                CONVOLVE.replace('1, ("Relu",)', "1"),
                VIEW,
                f"Compute({POOL}, (pooled,), (conv,))",
                FREE,
            ),
            COMPUTED,
            "wrong values in y.*relu",
        ),
        (
            "a buffer for every result",
            by_hand(
                "Alloc(conv)",
                CONVOLVE,
                "Alloc(pooled)",
                POOLED,
                "Dealloc(conv)",
                "TensorView(flat, pooled)",
                "Copy(y, flat)",
                "Dealloc(pooled)",
                before='flat = Buffer("flat", y.type)',
            ),
            HELD,
            "more memory is live",
        ),
    ),
    *mistakes(
        "P2.10",
        ("views are buffers", ranges(buffer="buffer"), VIEWS, "a view has no memory of its own"),
        (
            "one after another",
            {"P2-10-solution-2": "def allocate(lifetimes, alignment):\n    return bump(lifetimes, alignment)"},
            (AGAIN, FILLED, DENSE),
            "which of the placed buffers",
        ),
        ("the smallest first", allocator(key="b.bytes"), DENSE, "the order in which buffers are placed"),
        (
            "not aligned",
            allocator(end="offsets[o.name] + o.bytes"),
            ALIGNED,
            "where does a buffer end",
        ),
        (
            "the lifetimes sorted in place",
            allocator(before="lifetimes.sort(key=lambda b: -b.bytes)"),
            (APART, ALIGNED, AGAIN, FILLED, DENSE),
            "changes its arguments",
        ),
        (
            "constants have a range",
            ranges(skipped="getattr(buffer, 'kind', '') in ('input', 'output')"),
            RANGES,
            "weights are declared",
        ),
    ),
    *mistakes(
        "P2.11",
        ("without the arena", memory("constants"), (MEMORY, COSTS), "the activations need memory"),
        (
            "one comparison for both rows",
            latencies(
                "x = data.test_images[:16]",
                "if count == 1:",
                f"    both = compare({SIDES}, threads=1, atol=0.1)",
                "latency.fill(row, both)",
            ),
            ROWS,
            "several rows hold the same comparison",
        ),
        (
            "results that are not compared",
            latencies(f"latency.fill(row, compare({SIDES}, threads=1, check=False))"),
            FASTER,
            "never compared",
        ),
        (
            "all columns time what the variable of a loop is at the end",
            latencies(
                "calls = {name: lambda: side(x) for name, side in sides.items()}",
                "latency.fill(row, compare(calls, threads=1, atol=0.1))",
            ),
            (ROWS, FASTER),
            "the table does not show that fused is faster",
        ),
        (
            "digits in percent",
            counts(digits="100 * (logits.argmax(1) == data.test_labels).mean()"),
            COSTS,
            "the digits of",
        ),
    ),
)
