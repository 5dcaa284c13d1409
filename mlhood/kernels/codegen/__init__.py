"""Code generation: LLVM IR for the kernels of this machine's processor, compiled just in time.

A generator (`build` in `vectorised` or `direct_kernel`) writes the loops with `ir_builder` around a `microkernel` for a
`target`; `jit` compiles the module, or loads its object code from the disk cache, and returns a function that takes the
address of an `arguments` block. `steps` are the element-wise operations of `elementwise` and of all epilogues.
"""
