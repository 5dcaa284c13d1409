"""The isolation of untrusted notebooks.

In: a folder for the files that a notebook leaves. Out: a `Kernel` that runs in a sandbox, whose processes, memory,
files, messages and time are limited, and which sees nothing of the grader (`kernel.SandboxPool.kernel`).

`bubblewrap` and `seccomp` make the command line, `visible` lists what it shows of this package, `launcher` is the first
program inside, `sandbox` holds the connection to it, `limits` monitors it, and `kernel` keeps a pool.
`other_user` is the weaker isolation for containers, where bubblewrap is not permitted.
"""
