"""Remote calls into a student's process.

In: a request about a name of the notebook (call it, fetch it, read a table), made of arrays and plain data.
Out: a reply of arrays and plain data, decoded under limits on size and depth; a dead or lying process is an error.

`codec` encodes and decodes messages, `transport` sends them, `server` executes them in the student's process,
`file_channel` carries them as files, and `sources` takes from our modules the code that a request needs. `limited` runs
our own parsers of untrusted data in a process with limits.
"""
