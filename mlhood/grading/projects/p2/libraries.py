"""What exists where the functions of P2 are graded: the parts of the compiler that do not solve the task."""

from mlhood.grading.bare.libraries import Libraries

# they need torch, ONNX Runtime or a browser
_EXCHANGE = tuple(f"mlhood.exchange.{name}" for name in ("export", "render", "run", "view"))
_PASSES = (
    *("canonicalization", "clean_quantization", "composites", "constant_folding", "fusion", "patterns", "ranges"),
    *("removal", "transposes"),
)
_GUARDS = ("sweep", "defining_node", "has_one_use", "has_no_uses", "constant_array", "erase_if_unused")

TYPES = Libraries(packages=("numpy", "numba", "ml_dtypes"), modules=("mlhood.compiler.hir",))
COMPILER = Libraries(
    packages=("numpy", "numba", "onnx"),
    modules=(
        "mlhood.compiler.backends.nmp.codegen.convolution",
        "mlhood.compiler.backends.nmp.cycles",
        "mlhood.compiler.onnx.importer",
        "mlhood.compiler.lir.parse",
        "mlhood.compiler.lir.text",
        "mlhood.compiler.lir.verify",
        "mlhood.compiler.passes.rewriting",
    ),
    without=(
        *_EXCHANGE,
        "mlhood.exchange.lenet",
        *(f"mlhood.compiler.passes.{name}" for name in _PASSES),
        *(f"mlhood.compiler.passes.rewriting.{name}" for name in _GUARDS),
        "mlhood.compiler.hir.operator.Operator.from_onnx",
        "mlhood.compiler.operators.windows.read_window",
        "mlhood.compiler.lir.program.with_deallocs",
    ),
)
RECIPES = Libraries(
    packages=("numpy", "numba", "onnx", "pandas", "scikit-learn"),
    modules=(
        "mlhood.compiler.onnx.importer",
        "mlhood.compiler.hir.parse",
        "mlhood.compiler.passes",
        "mlhood.compiler.quantize",
        "mlhood.exchange.lenet",
    ),
    without=(*_EXCHANGE, "mlhood.compiler.quantize.report"),
    files=("lenet.onnx",),
)
