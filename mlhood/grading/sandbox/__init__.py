"""The isolation of untrusted notebooks.

In: a folder for the files that a notebook leaves. Out: a `Kernel` that runs in a sandbox, whose processes, memory,
files, messages and time are limited, and which sees nothing of the grader (`kernel.SandboxPool.kernel`).

`bubblewrap` and `seccomp` make the command line, `visible` lists what it shows of this package, `launcher` is the first
program inside, `sandbox` holds the connection to it, `limits` monitors it, `untrusted_folder` reads its files,
`kernel` connects it with Jupyter, through `channels` and `zmtp`, which limit what is received, and keeps a pool.
`other_user` and `other_user_kernel` are the weaker isolation for containers, where bubblewrap is not permitted.
"""
