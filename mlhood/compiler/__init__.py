"""The compiler: from an ONNX model to an optimised, optionally quantised graph that a back end executes.

    ONNX -> "hir" -> passes -> "optimized" -> profile, quantise, passes -> "quantized" -> a back end
                                                                 the last graph, lowered -> "lir"

compiled = mlhood.compile("lenet.onnx", quantization="symmetric")  # or stop_after="hir", ..., "lir"
compiled.run(image=images)["logits"]

In: an ONNX model (path, bytes or proto) and, to quantise it, calibration data. Out: an `Executable`, or the graph or
program at a named stop. Read the modules in the order in which a model passes through them:

    compile       the pipeline as one function with named stops
    onnx          import of ONNX models into the graph, and export
    hir           the typed graph: types, edits, verification, text, drawings and diffs
    operators     one class per operator: its type rule and its semantics in NumPy
    passes        graph optimisations, run to a fixed point by `pass_manager`
    quantize      profiles, Glow's four schemas, the rewriting to integers, and reports of the loss
    lir           the low-level IR: programs of instructions on memory, lowered from a graph, and their optimisations
    backends      execution of a graph; the interpreter, in NumPy, is the oracle
    analysis      a graph's convolutions, and the first node that a target computes differently
    bench         the execution of whole models beside other libraries

`commands` provides the command line, `bundle` writes a model as C or as a page, `torch_compile` is the backend of
torch.compile, and `compiler_figures` and `tables` are what P2 shows.
"""
