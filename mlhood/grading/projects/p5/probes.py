"""Probes that run in the student's process, with JAX; their answers are claims to be checked.

NumPy arrays are converted to JAX arrays before they are passed to the student's functions. Random keys are made here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from mlhood.grading.checks.probes import patched_globals
from mlhood.grading.rpc.guard import CHANGED, guarded
from mlhood.jaxlab.operators import network, with_jax
from mlhood.jaxlab.operators.cases import Case
from mlhood.measure import compare

MAX_ITERATIONS = 10_000
SLEEP = 0.25  # seconds


def on_device(values: Any) -> Any:
    """Convert the NumPy arrays of a tree to JAX arrays."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, values)


def on_host(values: Any) -> Any:
    """Convert the JAX arrays of a tree to NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, values)


def jitted(function: Callable, args: list[Any], static: list[Any] | tuple[Any, ...] = ()) -> Any:
    """Call a function under `jax.jit`; `static` arguments come last and are not traced."""
    return jax.jit(lambda *traced: function(*traced, *static))(*on_device(args))


def vmapped(function: Callable, args: list[Any]) -> Any:
    """Call a function under `jax.vmap`, over the first axis of all arguments."""
    return jax.vmap(lambda *traced: function(*traced))(*on_device(args))


def run(function: Callable, args: list[Any], static: list[Any] | tuple[Any, ...] = ()) -> Any:
    """Call a function under `jax.jit`, which is faster, or without it if it cannot be traced."""
    try:
        return jitted(function, args, static)
    except jax.errors.JAXTypeError:
        return function(*on_device(args), *static)


# -- P5.1


def tree_report(function: Callable, state: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the `tree` that a function makes of a state, whether its leaves are `all_jax`, and what is `broken`.

    JAX arrays may share the memory of the arrays that they are made of, since nothing can write to them.
    """
    tree, broken = guarded(function, [state])
    all_jax = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree))
    return {"tree": tree, "all_jax": all_jax, "broken": broken if broken == CHANGED else ""}


def run_resnet(function: Callable, state: dict[str, np.ndarray], x: np.ndarray) -> list[Any]:
    """Return logits, or the error, on the reference's tree and on the student's, each with both versions of `block`."""
    inner = inspect.unwrap(function)  # a program compiled before contains the student's block
    reference = network.tree(state)
    results = []
    for own_tree in (False, True):
        for replacements in ({}, {"block": reference_block}):
            attempt = inner if replacements else function
            try:
                with patched_globals(inner, **replacements):
                    params = inner.__globals__["to_tree"](state) if own_tree else reference
                    results.append(run(attempt, [params, x]))
            except NotImplementedError:
                raise
            except Exception as error:  # the student's code may raise anything; another attempt may succeed
                results.append(f"{type(error).__name__}: {error}"[:500])
    return results


def reference_block(params: Any, x: Any, stride: int) -> Any:
    """Run a basic block."""
    return network.block(with_jax, params, x, stride)


def reference_tree(state: Mapping[str, Any]) -> Any:
    """Return nested dictionaries of JAX arrays."""
    return on_device(network.tree(state))


def reference_resnet(params: Any, x: Any) -> Any:
    """Return the logits of ResNet-18."""
    return network.forward(with_jax, params, x)


# -- P5.3


def compile_times(function: Callable) -> dict[str, Any]:
    """Call the student's `compile_seconds` on functions that sleep for `SLEEP` while they are traced.

    Each function is passed twice, with arguments of the same shapes.

    Returns:
        For each call the `reported` seconds, the `elapsed` seconds of the call, how often the function was `traced` in
        it, and how often it `ran`.
    """
    report: dict[str, Any] = {"reported": [], "elapsed": [], "traced": [], "ran": []}
    for size in (3, 5):
        traced, ran = [], []

        def sleepy(x: jax.Array, y: jax.Array, traced: list = traced, ran: list = ran) -> jax.Array:
            traced.append(1)
            time.sleep(SLEEP)
            jax.debug.callback(lambda value: ran.append(1), x[0])
            return jnp.tanh(x) * y

        for _ in range(2):
            traced.clear()
            start = time.perf_counter()
            report["reported"].append(function(sleepy, jnp.ones(size), jnp.ones(size)))
            report["elapsed"].append(time.perf_counter() - start)
            jax.effects_barrier()
            report["traced"].append(len(traced))
            report["ran"].append(len(ran))
    return report


def watched_sides(function: Callable, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Call the student's `sides` on a case whose two functions watch what they are called with, and then both sides.

    Returns:
        The results of both sides, of two calls each (`no_jax`, `with_jax`), how often the function with JAX was called
        on tracers (`traced`) and on arrays (`eager`), whether its side runs without transferring anything to the device
        (`on_device`), and whether the function without JAX gets NumPy's arrays only (`in_numpy`).
    """
    calls: dict[str, list[bool]] = {"tracers": [], "numpy": []}

    def no_jax(x: Any, y: Any) -> Any:
        calls["numpy"].append(isinstance(x, np.ndarray) and isinstance(y, np.ndarray))
        return np.asarray(x) * 2 + np.asarray(y)

    def with_jax(x: Any, y: Any) -> Any:
        calls["tracers"].append(isinstance(x, Tracer) and isinstance(y, Tracer))
        return x * 2 + y

    both = function(Case(no_jax, with_jax, (x, y), x.size))
    names = ("No-JAX", "JAX")
    if not isinstance(both, dict) or sorted(both) != sorted(names) or not all(map(callable, both.values())):
        return {"sides": [str(key) for key in both] if isinstance(both, dict) else str(type(both).__name__)}
    results = {name: [np.asarray(jax.block_until_ready(both[name]())) for _ in range(2)] for name in names}
    report = {"sides": list(names), "no_jax": results["No-JAX"], "with_jax": results["JAX"]}
    traced, eager = sum(calls["tracers"]), calls["tracers"].count(False)
    in_numpy = len(calls["numpy"]) == 2 and all(calls["numpy"])
    return report | {
        "traced": traced,
        "eager": eager,
        "in_numpy": in_numpy,
        "on_device": _transfers_nothing(both["JAX"]),
    }


def _transfers_nothing(call: Callable) -> bool:
    """Whether a call passes no array from the host to JAX."""
    try:
        with jax.transfer_guard_host_to_device("disallow_explicit"):
            jax.block_until_ready(call())
    except Exception as error:  # JAX's guard raises an XlaRuntimeError, and whatever else fails has failed before
        if "transfer" in str(error).lower():
            return False
        raise
    return True


def package_ratio(row: str) -> list[float]:
    """Return the interval of the ratio NumPy / compiled JAX of the package's own operators for a row."""
    from mlhood.jaxlab.operators.cases import cases

    case = cases()[row]
    compiled, arguments = jax.jit(case.with_jax), jax.device_put(case.arguments)
    sides = {"jax": lambda: compiled(*arguments), "numpy": lambda: case.no_jax(*case.arguments)}
    ratio = compare(sides, threads=1).ratio("numpy", "jax")
    return [ratio.low, ratio.high]


# -- P5.4


def bounded_root(function: Callable, argument: float) -> dict[str, Any]:
    """Call a function of one number under `jax.jit`, with a bound on the iterations of `lax.while_loop`.

    Returns:
        The `result`, whether a loop was `endless`, and the names of the traced `operations`.
    """
    original, exceeded = lax.while_loop, []

    def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
        def condition(carry: tuple[Any, Any]) -> Any:
            return jnp.logical_and(cond_fun(carry[1]), carry[0] < MAX_ITERATIONS)

        iterations, value = original(condition, lambda carry: (carry[0] + 1, body_fun(carry[1])), (0, init_val))
        jax.debug.callback(lambda count: exceeded.append(bool(count >= MAX_ITERATIONS)), iterations)
        return value

    inner = inspect.unwrap(function)  # a program compiled before contains the unbounded loop
    names = getattr(inner, "__globals__", {})
    imported = {name: while_loop for name, value in names.items() if value is original}
    lax.while_loop = while_loop
    try:
        with patched_globals(inner, **imported):
            traced = jax.jit(lambda value: inner(value)).trace(jnp.float32(argument))
            result = traced.lower().compile()(jnp.float32(argument))
            jax.effects_barrier()
    finally:
        lax.while_loop = original
    return {"result": result, "endless": any(exceeded), "operations": _operations(traced.jaxpr.jaxpr)}


def running_means(function: Callable, values: list[float]) -> list[list[Any]]:
    """Return the means and states of `running_mean` for one number after another, under `jax.jit`."""
    compiled = jax.jit(lambda x, state: function(x, state))
    state, steps = (jnp.float32(0), jnp.float32(0)), []
    for value in values:
        mean, state = compiled(jnp.float32(value), state)
        steps.append([mean, list(state)])
    return steps


def repeated(function: Callable, value: float, state: list[float]) -> list[Any]:
    """Call `running_mean` three times with the same arguments: twice directly, and once under `jax.jit`."""
    arguments = jnp.float32(value), tuple(map(jnp.float32, state))
    calls = (function, function, jax.jit(lambda x, state: function(x, state)))
    results = [jax.tree.leaves(call(*arguments)) for call in calls]  # a state may be an array
    return [[float(number) for leaf in leaves for number in np.ravel(leaf)] for leaves in results]


def dropped(function: Callable, seed: int, x: np.ndarray, rate: float) -> Any:
    """Call `dropout` on x with a key of this seed, under `jax.jit`."""
    return jax.jit(lambda key, values: function(key, values, rate))(jax.random.key(seed), jnp.asarray(x))


# -- P5.7


def small_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """Return the mean cross entropy of a network of two layers: x [N, D], labels y [N]."""
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["out"]["w"] + params["out"]["b"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def per_example(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """Call the student's `per_example` on `small_loss`."""
    return function(small_loss, *on_device([params, x, y]))


def per_example_both_ways(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Return the leaves of `per_example` called directly (`direct`) and under `jax.jit` (`traced`)."""
    arguments = on_device([params, x, y])
    traced = jax.jit(lambda *args: function(small_loss, *args))(*arguments)
    return {"direct": jax.tree.leaves(function(small_loss, *arguments)), "traced": jax.tree.leaves(traced)}


def clipped(function: Callable, gradients: Any, limit: float) -> Any:
    """Call the student's `clipped_mean`."""
    return function(on_device(gradients), limit)


def example_operations(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the names of the operations in the jaxpr of `per_example`, nested ones included."""
    jaxpr = jax.make_jaxpr(lambda *args: function(small_loss, *args))(*on_device([params, x, y]))
    return _operations(jaxpr.jaxpr)


def _operations(jaxpr: Any) -> list[str]:
    """Return the names of the operations of a jaxpr, nested ones included."""
    names = []
    for equation in jaxpr.eqns:
        names.append(equation.primitive.name)
        for nested in _nested_jaxprs(equation):
            names += _operations(nested)
    return names


def _nested_jaxprs(equation: Any) -> list[Any]:
    parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: hasattr(part, "jaxpr"))
    jaxprs = [getattr(part, "jaxpr", part) for part in parts]
    return [jaxpr for jaxpr in jaxprs if hasattr(jaxpr, "eqns")]


# -- P5.8


def square_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """Return the mean square of x @ w + b - y."""
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def training_steps(
    function: Callable, params: Any, batches: list[Any], rate: float, momentum: float
) -> dict[str, list[Any]]:
    """Run the steps that `make_step` returns for SGD with momentum.

    Returns:
        For each step the `params` after it, its loss (`losses`), how many of the arrays passed as parameters and
        as state were still `live` after it, and how often the loss had been called by then (`traces`).
    """
    import optax

    calls: list[int] = []

    def counted_loss(params: Any, x: Any, y: Any) -> Any:
        calls.append(1)
        return square_loss(params, x, y)

    optimizer = optax.sgd(rate, momentum=momentum)
    step = function(optimizer, counted_loss)
    params = jax.tree.map(jnp.array, params)  # copies: NumPy's own memory cannot be donated
    state = optimizer.init(params)
    report: dict[str, list[Any]] = {"params": [], "losses": [], "live": [], "traces": []}
    for x, y in batches:
        passed = {"params": params, "state": state}
        params, state, loss = step(params, state, jnp.asarray(x), jnp.asarray(y))
        report["params"].append(on_host(jax.tree.map(jnp.copy, params)))  # a buffer that NumPy views cannot be donated
        report["losses"].append(loss)
        report["traces"].append(len(calls))
        live = {
            name: sum(isinstance(leaf, jax.Array) and not leaf.is_deleted() for leaf in jax.tree.leaves(part))
            for name, part in passed.items()
        }
        report["live"].append(live)
    return report


def trained_on(function: Callable, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Call the student's `train` with a `make_step` that works and is watched.

    Returns:
        The `params` and `losses` that it returns, the losses of the `steps` that it took, how many of their batches are
        `strangers`, rows that are not those of x with their labels y, and the rule `broken`.
    """
    rows: dict[bytes, set[int]] = {}
    for image, label in zip(x, y, strict=True):
        rows.setdefault(image.tobytes(), set()).add(int(label))
    steps, strangers = [], []

    def make_step(optimizer: Any, loss: Callable) -> Callable:
        @partial(jax.jit, donate_argnums=(0, 1))
        def step(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
            import optax

            value, gradient = jax.value_and_grad(loss)(params, images, labels)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, value

        def watched(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
            pairs = zip(np.asarray(images), np.asarray(labels), strict=True)
            known = all(int(label) in rows.get(image.tobytes(), ()) for image, label in pairs)
            strangers.append(not known)
            result = step(params, state, images, labels)
            steps.append(result[2])
            return result

        return watched

    with patched_globals(inspect.unwrap(function), make_step=make_step):
        (params, losses), broken = guarded(function, [x, y])
    report = {"params": on_host(params), "losses": losses, "broken": broken if broken == CHANGED else ""}
    return {**report, "steps": np.asarray([float(loss) for loss in steps]), "strangers": sum(strangers)}


# -- P5.9


@contextmanager
def _missing_rules() -> Iterator[None]:
    """Convert JAX's NotImplementedError about a missing rule, which would pass for a cell that is not written yet."""
    try:
        yield
    except NotImplementedError as error:
        if str(error):
            raise LookupError(str(error)) from error
        raise


@_missing_rules()
def quantized(function: Callable, x: np.ndarray, scale: float) -> dict[str, Any]:
    """Return the `value` of `fake_quantize` and the name of its `dtype`."""
    value = function(jnp.asarray(x), scale=scale)
    return {"value": value, "dtype": str(getattr(value, "dtype", type(value).__name__))}


@_missing_rules()
def quantized_compiled_derivatives(function: Callable, x: np.ndarray, scale: float) -> Any:
    """Return the gradient of the sum under `jax.jit`, and of each row by `jax.vmap` of it."""
    fixed = partial(function, scale=scale)
    return jax.jit(jax.vmap(jax.grad(lambda values: jnp.sum(fixed(values)))))(jnp.asarray(x))


@_missing_rules()
def quantized_compiled(function: Callable, x: np.ndarray, scale: float) -> dict[str, Any]:
    """Likewise under `jax.jit`, with the shape and dtype of the abstract evaluation."""
    fixed = partial(function, scale=scale)
    shape = jax.eval_shape(lambda values: fixed(values), jnp.asarray(x))
    value = jax.jit(lambda values: fixed(values))(jnp.asarray(x))
    return {"value": value, "shape": list(shape.shape), "dtype": str(shape.dtype)}


@_missing_rules()
def quantized_derivatives(function: Callable, x: np.ndarray, tangent: np.ndarray, scale: float) -> dict[str, Any]:
    """Differentiate `fake_quantize`: forward along `tangent`, and backward from its product with `tangent`, summed."""
    fixed = partial(function, scale=scale)
    primal, along = jnp.asarray(x), jnp.asarray(tangent)
    forward = jax.jvp(lambda values: fixed(values), (primal,), (along,))[1]
    backward = jax.grad(lambda values: jnp.sum(fixed(values) * along))(primal)
    return {"forward": forward, "backward": backward}


@_missing_rules()
def quantized_batch(function: Callable, x: np.ndarray, scale: float, axis: int) -> Any:
    """Call `fake_quantize` under `jax.vmap` along an axis, which is also the result's batch axis."""
    return jax.vmap(lambda values: function(values, scale=scale), in_axes=axis, out_axes=axis)(jnp.asarray(x))


@_missing_rules()
def quantized_primitives(function: Callable, x: np.ndarray, scale: float, other: np.ndarray) -> dict[str, Any]:
    """Trace `fake_quantize`.

    Returns:
        The names of the `operations` in the jaxpr, nested ones included, the `value` that it computes, and what it
        computes if the operation `fake_quantize` returns `other` (`replaced`).
    """
    jaxpr = jax.make_jaxpr(lambda values: function(values, scale=scale))(jnp.asarray(x))
    evaluate = partial(_evaluate, jaxpr.jaxpr, jaxpr.consts, {})
    try:
        value = evaluate(jnp.asarray(x))
    except Exception:  # without a rule for values, it may still have one for compiling
        value = jax.jit(lambda values: evaluate(values))(x)
    replaced = _evaluate(jaxpr.jaxpr, jaxpr.consts, {"fake_quantize": jnp.asarray(other)}, jnp.asarray(x))
    return {"operations": _operations(jaxpr.jaxpr), "value": value[0], "replaced": replaced[0]}


def _evaluate(jaxpr: Any, consts: Any, results: Mapping[str, Any], *args: Any) -> list[Any]:
    """Evaluate a jaxpr in which operations of these names have these results."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    read = lambda atom: atom.val if hasattr(atom, "val") else values[atom]  # noqa: E731
    for equation in jaxpr.eqns:
        inputs, nested = list(map(read, equation.invars)), equation.params.get("jaxpr")
        if equation.primitive.name in results:
            outputs: Any = results[equation.primitive.name]
        elif hasattr(nested, "consts"):
            outputs = _evaluate(nested.jaxpr, nested.consts, results, *inputs)
        else:
            outputs = equation.primitive.bind(*inputs, **equation.params)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, jaxpr.outvars))
