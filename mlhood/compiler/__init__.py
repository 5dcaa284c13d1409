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
    passes        one graph optimisation per module, run to a fixed point
    quantize      profiles, Glow's four schemas, the rewriting to integers, and reports of the loss
    lir           the low-level IR: programs of instructions on memory, lowered from a graph, and their optimisations
    backends      execution of a graph; the interpreter, in NumPy, is the oracle

`commands` and the modules named so provide the command line, `onnx_backend` ONNX's backend interface, `bundle` writes
a model as C or as a page, and `torch_compile` is the backend of torch.compile. `bench` measures compile time,
`bench_model` the execution of whole models, `parallelism` analyses a graph's task parallelism, `convolutions` extracts
a graph's convolutions, `debugger` finds the first node that a target computes differently, and `compiler_figures` and
`parallelism_figures` draw the notebooks' figures.
"""
