"""Typical wrong solutions of P2.9 to P2.11, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects.gallery import Mistake, mistakes
from tests.grading.projects.p2_snippets_programs import (
    CONV,
    POOL,
    STEPS,
    allocator,
    by_hand,
    counts,
    latencies,
    memory,
    ranges,
)

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
ALLOC, CONVOLVE, VIEW, POOLED, FREE = STEPS
SIDES = "{name: partial(side, x) for name, side in sides.items()}"
SWAPPED = "swapped = {'fused': 'as it is', 'as it is': 'fused'}"

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
            "the pooling writes into y as it is",
            by_hand(ALLOC, CONVOLVE, f"Compute({POOL}, (y,), (conv,))", FREE),
            PROGRAM,
            "what is written has another type",
        ),
        (
            "a window moves by one",
            by_hand(ALLOC, CONVOLVE, VIEW, POOLED.replace("(kernel, kernel", "(kernel, (1, 1)"), FREE),
            PROGRAM,
            "what is written has another type",
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
            "the bias is left out",
            by_hand(ALLOC, f"Compute({CONV}, (conv,), (x, w))", VIEW, POOLED, FREE),
            COMPUTED,
            "wrong values in y",
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
        (
            "a whole program",
            by_hand(*STEPS, before='program = Program("mine")', returned="program or [{}]"),
            PROGRAM,
            "does not return a list of instructions",
        ),
        (
            "the compiler's own lowering",
            by_hand(*STEPS, before="model = lower(None)"),
            PROGRAM,
            "is not available where this is graded",
        ),
        ("a tuple of instructions", by_hand(*STEPS, returned="({})"), PROGRAM, "does not return a list"),
    ),
    *mistakes(
        "P2.10",
        ("views are buffers", ranges(buffer="buffer"), VIEWS, "a view has no memory of its own"),
        ("a view of a view is forgotten", ranges(owner="i.source"), VIEWS, "memory of (a view|its own)"),
        (
            "the end is the next instruction",
            ranges(pair="(first, number + 1)"),
            (RANGES, VIEWS),
            "range of v.* is wrong",
        ),
        ("only reads count", ranges(uses="i.reads"), (RANGES, VIEWS), "missing in what|range of v.* is wrong"),
        ("inputs have a range, too", ranges(skipped="False"), (RANGES, VIEWS), "not allocated.*weights are declared"),
        (
            "one after another",
            {"P2-10-solution-2": "def allocate(lifetimes, alignment):\n    return bump(lifetimes, alignment)"},
            (AGAIN, FILLED, DENSE),
            "which of the placed buffers",
        ),
        (
            "above all that live at the same time",
            allocator(key="b.first", fits="False"),
            (AGAIN, FILLED, DENSE),
            "larger than it has to be",
        ),
        ("as they are allocated", allocator(key="b.first"), DENSE, "the order in which buffers are placed"),
        ("the smallest first", allocator(key="b.bytes"), DENSE, "the order in which buffers are placed"),
        (
            "an exact fit is refused",
            allocator(fits="at + b.bytes < offsets[o.name]"),
            DENSE,
            "larger than it has to be",
        ),
        (
            "offsets as floats",
            allocator(end="float(-(-(offsets[o.name] + o.bytes) // alignment) * alignment)"),
            (APART, ALIGNED, AGAIN, FILLED, DENSE),
            "no integer in the offsets",
        ),
        (
            "the last instruction does not count",
            allocator(alive="o.first < b.last and b.first < o.last"),
            (APART, AGAIN, FILLED, DENSE),
            "both ends belong to a lifetime",
        ),
        (
            "not aligned",
            allocator(end="offsets[o.name] + o.bytes"),
            ALIGNED,
            "where does a buffer end",
        ),
        (
            "always a cache line",
            allocator(end="-(-(offsets[o.name] + o.bytes) // 64) * 64"),
            ALIGNED,
            "multiples of 256",
        ),
        (
            "everything at 0",
            {
                "P2-10-solution-2": "def allocate(lifetimes, alignment):\n"
                "    return dict.fromkeys((b.name for b in lifetimes), 0)"
            },
            (APART, ALIGNED, AGAIN, FILLED, DENSE),
            "live at the same time share memory",
        ),
        (
            "the lifetimes sorted in place",
            allocator(before="lifetimes.sort(key=lambda b: -b.bytes)"),
            (APART, ALIGNED, AGAIN, FILLED, DENSE),
            "changes its arguments",
        ),
        (
            "instructions taken from the list",
            ranges(numbered="((n, instructions.pop(0)) for n in range(len(instructions)))"),
            (RANGES, VIEWS),
            "changes its arguments",
        ),
        (
            "what is declared is skipped before views are",
            ranges(before="if isinstance(buffer, Weight):\n                continue", skipped="False"),
            VIEWS,
            "not allocated.*weights are declared",
        ),
        ("to define a view is a use", ranges(uses="i.buffers"), VIEWS, "range of v.* is wrong"),
        (
            "constants have a range",
            ranges(skipped="getattr(buffer, 'kind', '') in ('input', 'output')"),
            RANGES,
            "weights are declared",
        ),
        (
            "what is declared is x and y",
            ranges(skipped="buffer.name in ('x', 'y')"),
            (RANGES, VIEWS),
            "weights are declared",
        ),
        (
            "views of views, but not of those",
            ranges(owner="i.source", buffer="owner.get(owner.get(buffer, buffer), owner.get(buffer, buffer))"),
            VIEWS,
            "range of v.* is wrong|weights are declared",
        ),
        ("lists for pairs", ranges(pair="[first, number]"), (RANGES, VIEWS), "range of v.* is wrong"),
    ),
    *mistakes(
        "P2.11",
        ("without the arena", memory("constants"), (MEMORY, COSTS), "the activations need memory"),
        (
            "without the constants",
            memory("plan(program.lifetimes()).bytes"),
            (MEMORY, COSTS),
            "the constants need memory",
        ),
        (
            "buffers that share nothing",
            memory("constants + sum(b.bytes for b in program.lifetimes())"),
            (MEMORY, COSTS),
            "not their sum",
        ),
        (
            "what is live at once",
            memory("constants + plan(program.lifetimes()).live_maximum"),
            (MEMORY, COSTS),
            "an arena in which buffers share memory",
        ),
        (
            "four bytes for every constant",
            memory("sum(4 * v.data.size for v in graph.constants.values()) + plan(program.lifetimes()).bytes"),
            (MEMORY, COSTS),
            "of 1 or 4 bytes an element",
        ),
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
            "all images in both rows",
            latencies("x = data.test_images", f"latency.fill(row, compare({SIDES}, threads=1, atol=0.1))"),
            ROWS,
            "different numbers of images",
        ),
        (
            "bytes as a float",
            memory("float(constants + plan(program.lifetimes()).bytes)"),
            (MEMORY, COSTS),
            "no integer",
        ),
        (
            "each column by itself",
            latencies(
                "for name, side in sides.items():",
                "    latency[row, name] = compare({name: partial(side, x)}, threads=1)[name]",
            ),
            ROWS,
            "not from one comparison",
        ),
        (
            "results that are not compared",
            latencies(f"latency.fill(row, compare({SIDES}, threads=1, check=False))"),
            FASTER,
            "never compared",
        ),
        (
            "fused and as it is exchanged",
            latencies(
                SWAPPED,
                "calls = {name: partial(sides[swapped.get(name, name)], x) for name in sides}",
                "latency.fill(row, compare(calls, threads=1, atol=0.1))",
            ),
            (ROWS, FASTER),
            "fused is not faster",
        ),
        (
            "all columns time the same stage",
            latencies("latency.fill(row, compare({name: partial(sides['fused'], x) for name in sides}, threads=1))"),
            (ROWS, FASTER),
            "do not differ as your functions do",
        ),
        (
            "digits in percent",
            counts(digits="100 * (logits.argmax(1) == data.test_labels).mean()"),
            COSTS,
            "the digits of",
        ),
        (
            "the constants alone",
            counts(size="sum(value.data.nbytes for value in graph.constants.values())"),
            COSTS,
            "the bytes of",
        ),
        ("a stage is left out", counts(skip="quantised"), COSTS, "cells of the table are empty"),
    ),
)
