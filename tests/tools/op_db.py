"""Compare torch.compile's backend "mlhood" with "aot_eager" over torch's own operator database, forward and backward.

    python -m tests.tools.op_db [NAME ...] [--samples N] [--dtype float32 ...]

AOTAutograd captures each sample; Dynamo would only see one call. Compared are errors, values, element types, shapes,
strides, which tensors share memory, arguments changed in place, and gradients. Prints a line for each difference, and
exits with 1 if there is one. Torch leaves some values open, which are not compared: random numbers, what is not
initialized, and which of equal elements `topk` takes.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from mlhood.compiler.torch_compile import Backend

# torch's database imports a package that only its tests of printed text use
sys.modules.setdefault("expecttest", types.ModuleType("expecttest")).__dict__.setdefault("TestCase", unittest.TestCase)

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

DTYPES = ("float32", "float64", "int64", "int32", "bool", "float16", "bfloat16")
SAMPLES = 8
SPECIAL = (
    [-100, -3, -2, -1, 0, 0, 1, 1, 2, 3, 4, 100],
    [math.nan, math.inf, -math.inf, -0.0, 0.0, -2.5, -1.0, -0.5, 0.5, 0.5, 1.0, 1.0, 1.5, 2.0, 30.0, 1e-30],
)
# By the start of the name.
NO_SPECIAL = {
    "nn.functional.gelu": "torch gives NaN for infinity where it vectorizes, and infinity where it does not",
    "nn.functional.ctc_loss": "torch writes beyond its memory for lengths that are not those of the targets",
    "linalg.eig": "LAPACK writes beyond its memory for NaN",
}
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def element_types(op: Any) -> list[torch.dtype]:
    """Return the element types on which an operator is compared."""
    return [dtype for name in DTYPES if (dtype := getattr(torch, name)) in op.supported_dtypes("cpu")]


def samples(op: Any, dtype: torch.dtype, count: int) -> Iterator[tuple[str, Any]]:
    """Yield names and inputs of an operator: usual ones, special values in their place, and what it refuses."""
    torch.manual_seed(0)
    usual = [*op.sample_inputs("cpu", dtype, requires_grad=is_differentiable(op, dtype))]
    refused = op.error_inputs("cpu") if op.error_inputs_func and dtype == element_types(op)[0] else []
    for name, found in {
        "sample": usual,
        "special": [] if op.name.startswith(tuple(NO_SPECIAL)) else usual,
        "error": [each.sample_input for each in refused],
    }.items():
        for i in range(0, len(found), max(1, len(found) // count))[:count]:
            yield f"{name} {i}", found[i].transform(special) if name == "special" else found[i]


def is_differentiable(op: Any, dtype: torch.dtype) -> bool:
    """Return whether torch differentiates an operator for real numbers of this type."""
    return dtype.is_floating_point and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def special(leaf: Any) -> Any:
    """Return a tensor of NaN, infinities, halves, zeros and negatives, many of them equal, in the place of another."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.dtype.is_complex:
        return leaf
    values = torch.tensor(SPECIAL[leaf.is_floating_point()]).to(leaf.dtype)
    drawn = torch.randint(len(values), leaf.shape, generator=torch.Generator().manual_seed(3))
    return torch.empty_like(leaf).copy_(values[drawn]).requires_grad_(leaf.requires_grad)


def as_graph(op: Any, sample: Any) -> tuple[GraphModule, list[torch.Tensor]]:
    """Return a graph that calls an operator, as Dynamo gives one to a backend, and the tensors that it takes."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = dict(zip(places, tensors, strict=True))
        value, args, kwargs = tree_unflatten([given.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        results = op(value, *args, **kwargs)
        if op.name == "topk":
            axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            results = (results[0].sort(axis)[0], value.gather(axis, results[1]).sort(axis)[0])
        return [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]

    graph = torch.fx.Graph()
    graph.output(graph.call_function(call, tuple(graph.placeholder(f"x{i}") for i in places)))
    return GraphModule({}, graph), [leaves[i] for i in places]


def copied(tensor: torch.Tensor, grad: bool) -> torch.Tensor:
    """Return a leaf with the same elements and strides."""
    copy = tensor.detach().clone()
    if tensor.layout == torch.strided and not (tensor.is_conj() or tensor.is_neg()):
        storage = tensor.detach().untyped_storage().clone()
        copy = copy.new_empty(0).set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    return copy.requires_grad_(grad and tensor.requires_grad and tensor.is_floating_point())


def outcome(compiler: Callable[..., Any], op: Any, sample: Any, grad: bool) -> dict[str, Any]:
    """Return what a backend makes of a sample: an error, or tensors and what else is compared, by name."""
    graph, tensors = as_graph(op, sample)
    inputs = [copied(x, grad) for x in tensors]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    try:
        with torch.set_grad_enabled(grad):
            arguments = [x.clone() if x.requires_grad else x for x in inputs]  # an operator may change them
            outputs = [*compiler(graph, arguments)(*arguments)]
        roots, leaves = [y for y in outputs if y.requires_grad], [x for x in inputs if x.requires_grad]
        generator = torch.Generator().manual_seed(2)
        cotangents = [torch.randn(y.shape, generator=generator).to(y.dtype) for y in roots]
        gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True) if roots and leaves else ()
    except Exception as error:
        return {"error": error}
    named = {"result": outputs, "argument": [x.detach() for x in arguments], "gradient": gradients}
    found = {f"{name} {i}": each for name, several in named.items() for i, each in enumerate(several)}
    return found | {"memory": shared([*arguments, *outputs]), "random": not torch.equal(state, torch.get_rng_state())}


def shared(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return for each tensor the position of the first with the same memory."""
    storages = [x.untyped_storage().data_ptr() if x.layout == torch.strided and x.numel() else -1 for x in tensors]
    return [i if each == -1 else storages.index(each) for i, each in enumerate(storages)]


def differences(op: Any, sample: Any, grad: bool) -> list[str]:
    """Return in what the backend "mlhood" differs for a sample from torch, with and without AOTAutograd."""
    got = outcome(Backend(), op, sample, grad)
    found = compared(op, outcome(lambda graph, _: graph, op, sample, grad), got)
    if not found:
        return []
    from torch._dynamo.backends.debugging import aot_eager

    return compared(op, outcome(aot_eager, op, sample, grad), got)


def compared(op: Any, expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    if expected.keys() != got.keys():
        shown = [" ".join(repr(each.get("error", "no error")).split())[:200] for each in (expected, got)]
        return [f"expected {shown[0]}, got {shown[1]}"]
    is_defined = not (expected.get("random") or op.name in UNINITIALIZED)
    texts = (difference(expected[name], got[name], is_defined) for name in expected if name != "error")
    return [f"{name}: {text}" for name, text in zip(expected, texts, strict=False) if text]


def difference(expected: Any, got: Any, is_defined: bool) -> str | None:
    if not (isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor)):
        return None if type(expected) is type(got) and expected == got else f"expected {expected}, got {got}"
    kinds = [(x.dtype, [*x.shape], x.stride() if x.layout == torch.strided else x.layout) for x in (expected, got)]
    if kinds[0] != kinds[1]:
        return "expected {}, got {}".format(*kinds)
    tolerance = TOLERANCES.get(expected.dtype, 0)
    try:
        if is_defined:
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return None


def compare(ops: Iterable[Any], dtypes: Sequence[str], count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each comparison's name and its differences: up to `count` samples of a kind, operator and element type."""
    for op in ops:
        for dtype in element_types(op):
            for name, sample in samples(op, dtype, count) if str(dtype).removeprefix("torch.") in dtypes else ():
                has_ties = op.name == "topk" and name.startswith("special")  # any of them gets the gradient
                for grad in (False, True) if is_differentiable(op, dtype) and not has_ties else (False,):
                    label = f"{op.full_name} {dtype} {name}{' with gradients' if grad else ''}"
                    yield label, differences(op, sample, grad)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", help="operators; all, if none is given")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each kind, operator and element type")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    count = wrong = 0
    chosen = [op for op in op_db if not arguments.names or op.name in arguments.names]
    for label, found in compare(chosen, arguments.dtype, arguments.samples):
        count, wrong = count + 1, wrong + bool(found)
        for text in found:
            print(f"{label}: {text}", flush=True)
    print(f"{count} comparisons, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
