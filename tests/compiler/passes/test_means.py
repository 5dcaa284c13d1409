"""Canonicalisation of means over spatial axes to pooling."""

from tests.compiler.passes.building import ReduceMean, ReduceSum, Tanh, becomes, before_and_after, stays

PASS = "means_to_pools"

REWRITTEN = {
    "keepdims=1": (lambda b: b(ReduceMean((2, 3)), b.x("n", 2, "h", 4)), ["GlobalAveragePool"]),
    "negative axes": (lambda b: b(ReduceMean((-1, -2)), b.x("n", 2, 4, 4)), ["GlobalAveragePool"]),
    "keepdims=0": (lambda b: b(ReduceMean((2, 3), False), b.x("n", 2, 4, 4)), ["GlobalAveragePool", "Flatten"]),
    "one axis": (lambda b: b(ReduceMean((2,)), b.x("n", 2, 4)), ["GlobalAveragePool"]),
    "three axes": (lambda b: b(ReduceMean((2, 3, 4), False), b.x("n", 2, 2, 2, 2)), ["GlobalAveragePool", "Flatten"]),
}


test_rewritten = becomes(PASS, REWRITTEN)


STAYS = {
    "some axes": lambda b: b(ReduceMean((3,)), b.x("n", 2, 4, 4)),
    "channels and spatial axes": lambda b: b(ReduceMean((1, 2, 3)), b.x("n", 2, 4, 4)),
    "channels last": lambda b: b(ReduceMean((1, 2)), b.x("n", 4, 4, 2)),
    "a matrix": lambda b: b(ReduceMean((1,)), b.x("n", 4)),
    "no axes": lambda b: b(ReduceMean(()), b.x("n", 4)),
    "integers": lambda b: b(ReduceMean((2, 3)), b.x(1, 1, 2, 2, element="int32")),
    "four spatial axes": lambda b: b(ReduceMean((2, 3, 4, 5)), b.x("n", 2, 2, 2, 2, 2)),
    "float64": lambda b: b(ReduceMean((2, 3)), b.x(1, 1, 2, 2, element="float64")),
    "sum": lambda b: b(ReduceSum((2, 3)), b.x("n", 2, 4, 4)),
}


test_stays = stays(PASS, STAYS)


def test_golden(golden):
    golden(
        "compiler/golden/passes/means_to_pools.txt",
        before_and_after(lambda b: b(Tanh(), b(ReduceMean((2, 3), False), b.x("n", 2, 4, 4), name="mean")), PASS),
    )
