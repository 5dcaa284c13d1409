"""Computations that checks run in an isolated process: on a student's graph, or with JAX, which a grader does not load.

This module imports no project: that would take longer than most of the work.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlhood.compiler.hir import Graph

DEVICES = 8  # that JAX has in such a process
NEARLY = 1e-4  # times the largest logit


def recipe_costs(
    graph: Graph, recipes: list[dict[str, Any]], columns: list[str], data: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Quantise a float graph by each recipe and return its costs.

    Args:
        graph: From `image` to `logits`.
        recipes: Arguments of `Recipe`.
        columns: The costs to return, of those in `summary`.
        data: `seen`, images for the profile, float32 [N, 1, 32, 32]; `images` to measure the costs on, float32
            [M, 1, 32, 32], and their `labels`, int64 [M].

    Returns:
        The costs by each recipe.
    """
    from mlhood.compiler.quantize import Recipe, profile, quantize, summary

    statistics, images = profile(graph, [{"image": data["seen"]}]), {"image": data["images"]}
    results = []
    for arguments in recipes:
        costs = summary(graph, quantize(graph, statistics, Recipe(**arguments)), images, data["labels"])
        results.append({key: costs[key] for key in columns})
    return results


def program_runs(texts: list[str], inputs: list[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    """Parse, verify and execute programs of the low-level IR, each on its inputs.

    Returns:
        For each program: `outputs` by name, and the `peak` of the bytes of its activations that are live at once; or
        the `error` that it is refused with, and the parts of this error by name.
    """
    return [_program_run(text, arrays) for text, arrays in zip(texts, inputs, strict=True)]


def _program_run(text: str, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    from mlhood.compiler.lir.execute import Executor
    from mlhood.compiler.lir.parse import parse
    from mlhood.compiler.memory.plan import live_bytes
    from mlhood.errors import CompilerError

    try:
        program = parse(text)
        outputs = Executor(program).run(inputs)
    except CompilerError as error:
        return {"error": error.what, **{key: str(part) for key, part in error.parts.items()}}
    return {"outputs": outputs, "peak": int(live_bytes(program.lifetimes()).max(initial=0))}


def stage_costs(
    graphs: dict[str, Graph],
    digits: tuple[np.ndarray, np.ndarray],
    activations: str = "the arena",
) -> dict[str, Any]:
    """Return what each stage of LeNet costs.

    Args:
        graphs: From `image` to `logits`, by name.
        digits: Test images, float32 [N, 1, 32, 32], and their labels, int64 [N].
        activations: See `image_bytes`.

    Returns:
        By name: `bytes` for one image (`image_bytes`), and the least and the most `digits` that are read right, since
        rounding decides between nearly equal logits.
    """
    from mlhood.compiler.backends.interpreter import run

    costs = {}
    for name, graph in graphs.items():
        logits = run(graph, image=digits[0])["logits"]
        second, largest = np.sort(logits, axis=1)[:, -2:].T
        right, close = logits.argmax(1) == digits[1], largest - second <= NEARLY * np.abs(logits).max()
        span = int((right & ~close).sum()), int((right | close).sum())
        costs[name] = {"bytes": image_bytes(graph, activations), "digits": span}
    return costs


def image_bytes(graph: Graph, activations: str = "the arena") -> int:
    """Return the bytes of a graph's constants, and of the arena of its program for one image by the compiler's plan.

    Args:
        graph: The graph.
        activations: What is counted of the program: "the arena", "the live maximum", or "all buffers", as if none of
            them shared memory.
    """
    from mlhood.compiler.lir.lowering import lower
    from mlhood.compiler.memory.plan import plan

    constants = sum(value.data.nbytes for value in graph.constants.values())
    lifetimes = lower(graph, {"batch": 1}).lifetimes()
    if activations == "all buffers":
        return constants + sum(buffer.bytes for buffer in lifetimes)
    planned = plan(lifetimes)
    return constants + (planned.live_maximum if activations == "the live maximum" else planned.bytes)


def step_gradient(seed: int) -> dict[str, np.ndarray]:
    """Return the gradient that the script `cluster_step.py SEED OUT` has to write, computed in one process.

    Args:
        seed: Of weights and data, `program.data(seed)`; the loss is `program.loss`.
    """
    import jax

    from mlhood.jaxlab.cluster import program

    jax.config.update("jax_num_cpu_devices", DEVICES)
    gradient = jax.jit(jax.grad(program.loss))(*program.data(seed))
    return {name: np.asarray(value) for name, value in gradient.items()}


def exported_runs(programs: list[tuple[bytes, list[list[np.ndarray]]]]) -> list[dict[str, Any]]:
    """Compile programs that `jax.export` has written for at most `DEVICES`, and run each on some lists of arguments.

    Returns:
        Of each program the `results` for each list of arguments, arrays; the names of its `operations` in StableHLO,
        how many of them are `divisions` by other numbers than constants, which arguments are `donated`, the kinds of
        its `collectives`, and the `flops` of one device, 0 if unknown.
    """
    import jax
    from jax import export
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from mlhood.jaxlab.cluster.collectives import collectives
    from mlhood.jaxlab.xla.hlo import parse

    jax.config.update("jax_num_cpu_devices", DEVICES)
    reports = []
    for program, cases in programs:
        exported = export.deserialize(bytearray(program))
        text, devices = exported.mlir_module(), np.array(jax.devices()[: exported.nr_devices])
        everywhere = NamedSharding(Mesh(devices, ("all",)), PartitionSpec())
        placed = jax.device_put(cases, everywhere)
        compiled = jax.jit(exported.call).lower(*placed[0]).compile()
        heading = text[text.index("@main(") : text.index("->")]
        reports.append(
            {
                "results": [list(map(np.asarray, compiled(*arguments))) for arguments in placed],
                "operations": re.findall(r"(?<!#)\b(?:stablehlo|chlo)\.(\w+)", text),
                "divisions": len(re.findall(r"stablehlo\.divide %\w+, %(?!c)", text)),
                "donated": re.findall(r"%arg(\d+): [^%]*(?:tf\.aliasing_output|jax\.buffer_donor)", heading),
                "collectives": [each.kind for each in collectives(parse(compiled.as_text() or ""))],
                "flops": (compiled.cost_analysis() or {}).get("flops", 0.0),
            }
        )
    return reports
