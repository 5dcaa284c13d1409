"""The compiler: from an ONNX model to a graph of integer operators, and what runs it.

    ONNX -> "hir" -> passes -> "optimized" -> profile, quantise, passes -> "quantized" -> a back end

compiled = mlhood.compile("lenet.onnx", quantization="symmetric")  # or stop_after="hir", "optimized", "quantized"
compiled.run(image=images)["logits"]

Read it in the order in which a model goes through it:

    compile       the whole way as one straight function with named stops
    hir           the typed graph: types, edits, verification, text, drawings and diffs, from ONNX and back to it
    operators     one class an operator: its type rule, its meaning in NumPy, its import rule
    passes        one graph optimisation a module, run until nothing changes
    quantize      profiles, Glow's four schemas, the rewriting to integers, and what it cost
    backends      what runs a graph; the interpreter, in NumPy, is the oracle

`commands` is all this in the shell, `onnx_backend` in ONNX's own interface, which `conformance` drives; `bench`
measures what compiling costs, and `pictures` draws what the notebooks show.
"""
