"""Products with a packed right factor, against NumPy."""

import numpy as np
import pytest

from mlhood.kernels import native, product
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.microkernel import candidates
from mlhood.kernels.codegen.target import AARCH64, available, host
from mlhood.kernels.product import ProductSizes
from tests.kernels.guards import Guarded

SIZES = [
    ProductSizes(1, 10, 84),
    ProductSizes(7, 33, 17),
    ProductSizes(49, 40, 3, 4),
    ProductSizes(13, 1, 1, 2),
    ProductSizes(6, 16, 129),
    ProductSizes(5, 3, 2),
]


def operands(sizes, seed=0):
    draw = np.random.default_rng(seed)
    a = draw.standard_normal((sizes.batch, sizes.m, sizes.k), np.float32)
    b = draw.standard_normal((sizes.batch, sizes.k, sizes.n), np.float32)
    return a, b, draw.standard_normal(sizes.n, np.float32)


def check(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", available(), ids=lambda target: target.name)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_agree_with_numpy_and_stay_in_bounds(sizes, target):
    a, b, bias = operands(sizes)
    x, results = Guarded(a.shape, a, shift=3), []
    for threads in (1, 2):
        c = Guarded((sizes.batch, sizes.m, sizes.n), shift=5)
        steps = (("Clip", (0.0, 2.0), (0,)),)
        call = product.prepare(sizes, b, bias, threads=threads, target=target, epilogue=steps)
        native.run(call, threads, a=x.array, c=c.array)
        c.check()
        check(c.array, np.clip(a @ b + bias, 0, 2))
        results.append(c.array)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("tile", candidates(host())[::5], ids=str)
def test_every_tile_gives_the_product(tile):
    sizes = ProductSizes(19, 35, 21)
    a, b, _ = operands(sizes, 1)
    c = np.empty((19, 35), np.float32)
    packed = product.pack(b[0], tile.columns)
    native.run(product.prepare(sizes, packed, tile=tile), a=a, c=c)
    check(c, a[0] @ b[0])


def test_rows_may_be_further_apart_than_they_are_long():
    sizes = ProductSizes(5, 6, 7, 2)
    a, b, _ = operands(sizes, 2)
    wide = np.full((2, 5, 11), np.nan, np.float32)
    wide[..., :7] = a
    c = np.full((2, 5, 16), np.nan, np.float32)
    native.run(product.prepare(sizes, b, a_ld=11, c_ld=16), a=wide, c=c)
    check(c[..., :6], a @ b)
    assert np.isnan(c[..., 6:]).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("target", available(), ids=lambda target: target.name)
def test_a_factor_can_be_packed_at_run_time(transposed, target):
    sizes = ProductSizes(9, 21, 13, 3)
    a, b, _ = operands(sizes, 3)
    tile = product.choose(sizes, target)
    packed = Guarded((3, -(-21 // tile.columns), 13, tile.columns))
    source = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else b
    pack = product.pack_at_run_time(sizes, tile, transposed=transposed, target=target)
    native.run(pack, 2, source=Guarded(source.shape, source).array, out=packed.array)
    packed.check()
    np.testing.assert_array_equal(packed.array, product.pack(b, tile.columns))
    c = np.empty((3, 9, 21), np.float32)
    native.run(product.prepare(sizes, None, target=target, tile=tile), a=a, b=packed.array, c=c)
    check(c, a @ b)


@pytest.mark.parametrize("sizes", [ProductSizes(0, 3, 4), ProductSizes(3, 0, 4), ProductSizes(2, 3, 4, 0)], ids=str)
def test_empty_products_return(sizes):
    a, b, _ = operands(sizes)
    native.run(product.prepare(sizes, b), a=a, c=np.empty((sizes.batch, sizes.m, sizes.n), np.float32))


def test_a_product_over_nothing_is_the_bias():
    sizes = ProductSizes(3, 5, 0)
    a, b, bias = operands(sizes)
    c = np.empty((3, 5), np.float32)
    native.run(product.prepare(sizes, b, bias), a=a, c=c)
    np.testing.assert_array_equal(c, np.broadcast_to(bias, (3, 5)))


def test_nan_and_infinities_propagate():
    a = np.array([[np.nan, 1], [np.inf, 1], [1, 2]], np.float32)
    c = np.empty((3, 2), np.float32)
    b, steps = np.ones((2, 2), np.float32), (("Relu", (), (0,)),)
    native.run(product.prepare(ProductSizes(3, 2, 2), b, epilogue=steps), a=a, c=c)
    np.testing.assert_array_equal(c[:, 0], [np.nan, np.inf, 3])


def test_the_code_compiles_for_arm():
    assert "fmla" in jit.compile_ir(product.build(AARCH64, 6, 4, 1), AARCH64, assembly=True)
