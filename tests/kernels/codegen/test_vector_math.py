"""Functions of vectors, over the whole range of float32, against NumPy in float64, SciPy and torch."""

import functools

import numpy as np
import pytest
import scipy.special
import torch

from mlhood.kernels.codegen import jit, vector_math
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.target import AARCH64, Target
from mlhood.kernels.native import native_call, run

FIELDS = ("count", "x", "out")
INTERNAL = {
    "exp_of_nonpositive": vector_math.exp_of_nonpositive,
    "expm1": vector_math.expm1,
    "log1p": vector_math.log1p,
}
CASES: tuple[tuple[str, tuple], ...] = (
    *((name, ()) for name in vector_math.FUNCTIONS if name != "Clip"),
    *((name, ()) for name in INTERNAL),
    *(("Clip", limits) for limits in [(), (-1.5, None), (None, 2), (-0.25, 6.0)]),
    ("Elu", (1.6732632423543772, 1.0507009873554805)),
    ("Gelu", ("tanh",)),
    ("HardSigmoid", (0.3, 0.4)),
    ("LeakyRelu", (0.2,)),
)
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 2**-126, 3.4e38, -3.4e38], np.float32)


def build(target: Target, cases: tuple) -> str:
    """Generate a kernel that writes each case's function of `count` elements to a row of the result."""
    arguments = Arguments(FIELDS)
    code = arguments.code
    x, out, count = arguments.pointer("x"), arguments.pointer("out"), arguments.integer("count")
    for row, (name, attributes) in enumerate(cases):
        function = vector_math.FUNCTIONS.get(name) or INTERNAL[name]
        with code.loop(0, count, target.lanes) as i:
            out.at(count * row + i).store(function(code, x.at(i).load(target.lanes), *attributes))
    return arguments.finished()


@functools.cache
def results(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return x and the functions of the cases, one per row."""
    patterns = np.arange(0, 2**32, 65_537, dtype=np.uint32).view(np.float32)  # all exponents, both signs
    dense = np.linspace(-20, 20, 40_001, dtype=np.float32)
    exponents = np.linspace(-106, 90, 20_001, dtype=np.float32)
    x = np.concatenate([SPECIAL, patterns, dense, exponents])
    x = np.pad(x, (0, -x.size % target.lanes))
    out = np.empty((len(CASES), x.size), np.float32)
    run(native_call(jit.load(build, target, CASES), FIELDS, {"count": x.size}, ["x", "out"]), x=x, out=out)
    return x, out


def gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    inner = x * np.sqrt(0.5)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + scipy.special.erf(inner))


def clip(x: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    y = x if low is None else np.maximum(x, low)
    return y if high is None else np.minimum(y, high)


def elu(x: np.ndarray, alpha: float = 1.0, gamma: float = 1.0) -> np.ndarray:
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


EXACT = {
    "Abs": np.abs,
    "Clip": clip,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Sqrt": np.sqrt,
}
ACCURATE = {
    "Erf": scipy.special.erf,
    "Exp": np.exp,
    "LeakyRelu": lambda x, alpha=0.01: np.where(x > 0, x, np.float32(alpha) * x),
    "Log": np.log,
    "Sigmoid": scipy.special.expit,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Tanh": np.tanh,
    "Elu": elu,
    "exp_of_nonpositive": lambda x: np.where(x < -87, 0, np.exp(x)),
    "expm1": np.expm1,
    "log1p": np.log1p,
}
# the numbers that these are defined for
DOMAINS = {"exp_of_nonpositive": (-np.inf, 0), "log1p": (0, 3.4e38)}
# these cancel near a zero, as in float32 arithmetic with any library
NEAR = {
    "Gelu": gelu,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(x * alpha + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Silu": lambda x: x * scipy.special.expit(x),
}
REFERENCES = {**EXACT, **ACCURATE, **NEAR}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1]))))
def test_a_function_is_accurate_over_the_whole_range(case, target):
    name, attributes = case
    x, out = results(target)
    y = out[CASES.index(case)]
    low, high = DOMAINS.get(name, (-np.inf, np.inf))
    inside = np.isnan(x) | (x >= low) & (x <= high)
    x, y = x[inside], y[inside]
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCES[name](x.astype(np.float64), *attributes))
        expected = exact.astype(np.float32)
    if name in EXACT:
        np.testing.assert_array_equal(y, expected)
        return
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    compared = np.isfinite(expected) & np.isfinite(y)
    # one is infinite: the other is too, or it is the largest number
    np.testing.assert_array_less(3.4e38, np.minimum(abs(y), abs(expected))[~compared & ~np.isnan(y)])
    absolute = np.broadcast_to(3e-45 if name in ACCURATE else 3e-7 * np.maximum(1, abs(x[compared])), x[compared].shape)
    error = abs(y[compared] - exact[compared])
    worst = np.argmax(error - 4e-7 * abs(exact[compared]) - absolute)
    assert error[worst] <= 4e-7 * abs(exact[compared][worst]) + absolute[worst], x[compared][worst]


@pytest.mark.parametrize("name", ["Sqrt", "Neg"])
def test_zeros_keep_their_sign_as_in_numpy(name, target):
    x, out = results(target)
    with np.errstate(all="ignore"):
        expected = EXACT[name](x)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(out[CASES.index((name, ()))])[zeros], np.signbit(expected)[zeros])


def test_the_activations_are_those_of_torch(target):
    x, out = results(target)
    ordinary = np.abs(x) < 50
    functions = torch.nn.functional
    references = {
        ("Elu", (1.6732632423543772, 1.0507009873554805)): functions.selu,
        ("Gelu", ()): functions.gelu,
        ("Gelu", ("tanh",)): lambda values: functions.gelu(values, approximate="tanh"),
        ("HardSwish", ()): functions.hardswish,
        ("Silu", ()): functions.silu,
        ("Softplus", ()): functions.softplus,
        ("LeakyRelu", ()): functions.leaky_relu,
    }
    for case, reference in references.items():
        expected = reference(torch.from_numpy(x[ordinary])).numpy()
        np.testing.assert_allclose(out[CASES.index(case)][ordinary], expected, rtol=2e-6, atol=2e-6)


def test_functions_for_arm_are_assembled():
    text = jit.compile_ir(build(AARCH64, CASES), AARCH64, assembly=True)
    assert text.count("fmla") >= 50
    assert "\tbl\t" not in text  # nothing calls the C library
