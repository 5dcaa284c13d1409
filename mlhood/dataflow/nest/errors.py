"""What can be wrong with a loop nest or with a step of its schedule."""

from mlhood.errors import DataflowError


class NestError(DataflowError):
    """A nest cannot be read, a step would change what it computes, or it is run on what does not fit."""

    stage = "loop nest"
