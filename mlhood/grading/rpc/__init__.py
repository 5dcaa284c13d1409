"""Remote calls into a student's process.

In: a request about a name of the notebook (call it, fetch it, read a table), made of arrays and plain data.
Out: a reply of arrays and plain data, decoded under limits on size and depth; a dead or lying process is an error.

`codec` encodes and decodes messages, `pipes` carries them, `cell_runner` is the student's process, in which `server`
executes them, and `sources` takes from our modules the code that a request needs. `limited` runs our own parsers of
untrusted data in a process with limits.
"""
