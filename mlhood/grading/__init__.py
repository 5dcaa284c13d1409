"""From a submission to its marks: the rooms of grading, in the order in which each may use those before it.

In: notebooks. Out: marks with reasons, reports, a gradebook, exports. `rpc` calls into a student's process; `checks`
has tasks and their checks, `projects` those of the course; `notebooks` reads and restores submissions; `execution` runs
and grades one, in a `sandbox`. `intake` collects the submissions of a class, `batch` grades them into a `gradebook`;
`similarity`, `reports` and `exporters` read it. `student` and `gradescope` are what students and Gradescope call.
"""

import sys

# nbformat imports jsonschema, which compiles a grammar of internationalized addresses for one or two seconds, in every
# command and every kernel (python-jsonschema/jsonschema#1428). The library is optional, and no schema of a notebook has
# such addresses.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType]
