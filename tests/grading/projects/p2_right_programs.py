"""Right solutions of P2.9 to P2.11 in styles other than the master notebook's."""

from __future__ import annotations

ARRAY_OPERATIONS = {
    "P2-9-solution": """
from mlhood.compiler.operators.elementwise import Relu
def by_hand(x, w, b, y, pads, kernel):
    conv = Buffer("a", infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1))
    image = Buffer("image", infer_pool(conv.type, kernel, kernel, (0, 0, 0, 0)))
    steps = [TensorView(image, y), Alloc(conv)]
    steps.append(Compute(Conv((1, 1), pads, (1, 1)), (conv,), (x, w, b)))
    steps.append(Compute(Relu(), (conv,), (conv,)))  # in place
    steps.append(Compute(MaxPool(kernel, kernel, (0, 0, 0, 0), (1, 1)), (image,), (conv,)))
    return [*steps, Dealloc(conv)]
""",
    "P2-10-solution": """
def live_ranges(instructions):
    owner, uses = {}, {}
    for number, step in enumerate(instructions):
        for buffer in step.buffers:
            owner.setdefault(buffer, buffer)
        if isinstance(step, TensorView):
            owner[step.buffer] = owner[step.source]
        for buffer in step.reads + step.writes:
            uses.setdefault(owner[buffer], []).append(number)
    return {b.name: (np.min(n), np.max(n)) for b, n in uses.items() if not isinstance(b, Weight)}
""",
    "P2-10-solution-2": """
def allocate(lifetimes, alignment):
    spans = np.array([(b.bytes, b.first, b.last) for b in lifetimes])
    size = -(-spans[:, 0] // alignment) * alignment
    offset = np.full(len(size), -1)
    for i in np.argsort(-spans[:, 0], kind="stable"):
        live = (offset >= 0) & (spans[:, 1] <= spans[i, 2]) & (spans[i, 1] <= spans[:, 2])
        starts, ends = offset[live], offset[live] + size[live]
        candidates = np.append(0, ends)
        free = [((at + size[i] <= starts) | (ends <= at)).all() for at in candidates]
        offset[i] = candidates[free].min()
    return {b.name: at for b, at in zip(lifetimes, offset)}
""",
    "P2-11-solution": """
def memory(graph):
    arena = plan(lower(graph, {"batch": 1}).lifetimes()).bytes
    return arena + int(np.sum([value.data.size * value.data.itemsize for value in graph.constants.values()]))
""",
    "P2-11-solution-2": """
for row, count in IMAGES.items():
    x = data.test_images[:count]
    made = compare({side: lambda call=call: call(x) for side, call in sides.items()}, atol=0.1, threads=1, rounds=25)
    for column in latency.columns:
        latency[row, column] = made[column]
""",
}

LOOPS = {
    "P2-9-solution": """
def by_hand(x, w, b, y, pads, kernel):
    n, f, height, width = infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1).shape
    big = Buffer("big", TensorType(x.type.element, (n, f, height, width)))
    small = Buffer("small", TensorType("float32", (n, f, height // kernel[0], width // kernel[1])))
    program = []
    program.append(Alloc(big))
    program.append(Compute(Conv((1, 1), tuple(pads), (1, 1), activation=("Relu",)), (big,), (x, w, b), call=True))
    program.append(TensorView(small, y))
    program.append(Compute(MaxPool(tuple(kernel), tuple(kernel), (0, 0, 0, 0), (1, 1)), (small,), (big,)))
    program.append(Dealloc(big))
    return program
""",
    "P2-10-solution": """
def live_ranges(instructions):
    memory_of, result = {}, {}
    def owner(buffer):
        while buffer in memory_of:
            buffer = memory_of[buffer]
        return buffer
    for number in range(len(instructions)):
        step = instructions[number]
        if isinstance(step, TensorView):
            memory_of[step.buffer] = step.source
            continue
        for buffer in list(step.reads) + list(step.writes):
            memory = owner(buffer)
            if isinstance(memory, Weight):
                continue
            if memory.name not in result:
                result[memory.name] = (number, number)
            result[memory.name] = (result[memory.name][0], number)
    return result
""",
    "P2-10-solution-2": """
def allocate(lifetimes, alignment):
    best, least = None, None
    keys = [lambda b: -b.bytes, lambda b: -b.bytes * (b.last - b.first + 1), lambda b: b.first]
    for key in keys:
        offsets, done = {}, []
        for b in sorted(lifetimes, key=key):
            at, moved = 0, True
            while moved:
                moved = False
                for o in done:
                    if o.last < b.first or b.last < o.first:
                        continue
                    if offsets[o.name] < at + b.bytes and at < offsets[o.name] + o.bytes:
                        at = (offsets[o.name] + o.bytes + alignment - 1) // alignment * alignment
                        moved = True
            offsets[b.name] = at
            done.append(b)
        arena = max(offsets[b.name] + b.bytes for b in lifetimes)
        if best is None or arena < least:
            best, least = offsets, arena
    return best
""",
    "P2-11-solution": """
def memory(graph):
    total = plan(lower(graph, {"batch": 1}).lifetimes()).bytes
    for value in graph.constants.values():
        total += value.data.nbytes
    return total
""",
    "P2-11-solution-3": """
for name, graph in stages.items():
    right = 0
    for image, digit in zip(data.test_images, data.test_labels):
        right += int(sides[name](image[None])[0].argmax() == digit)
    costs["digits", name] = Count(right)
    costs["bytes", name] = Count(memory(graph))
""",
}

ONE_LINERS = {
    "P2-9-solution": """
by_hand = lambda x, w, b, y, pads, kernel: (lambda conv, views: [
    Alloc(conv), Compute(Conv((1, 1), pads, (1, 1), 1, ("Relu",)), (conv,), (x, w, b)), TensorView(views[0], y),
    TensorView(views[1], views[0]), TensorView(views[2], views[1]),
    Compute(MaxPool(kernel, kernel, (0, 0, 0, 0), (1, 1)), (views[2],), (conv,)), Dealloc(conv)])(
        Buffer("c", infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1)),
        [Buffer(f"p{i}", infer_pool(infer_conv(x.type, w.type, (1, 1), pads, (1, 1), 1), kernel, kernel, (0,) * 4))
         for i in range(3)])
""",
    "P2-10-solution": """
def live_ranges(instructions):
    views = {i.buffer: i.source for i in instructions if isinstance(i, TensorView)}
    root = lambda buffer: root(views[buffer]) if buffer in views else buffer
    uses = [(root(b), n) for n, i in enumerate(instructions) for b in {*i.reads, *i.writes}]
    return {b.name: (min(n for a, n in uses if a is b), max(n for a, n in uses if a is b))
            for b, _ in uses if not isinstance(b, Weight)}
""",
    "P2-11-solution-2": """
from functools import partial
for row, count in IMAGES.items():
    batch = {"image": np.ascontiguousarray(images[:count])}
    calls = {name: partial(lambda run, x: run(x)["logits"], runner.run, batch) for name, runner in runners.items()}
    calls[ONNX_RUNTIME] = partial(lambda x: session.run(None, x)[0], batch)
    latency.fill(row, compare(calls, baseline="fused", threads=1, atol=0.1))
""",
    "P2-11-solution-3": """
reads = {name: sides[name](images).argmax(1) for name in costs.columns}
for name in costs.columns:
    right = int(sum(reads[name] == data.test_labels))
    costs["bytes", name], costs["digits", name] = Count(memory(stages[name])), Count(right)
""",
}
