"""One program over many devices and processes: meshes, collectives, schedules, and what they will cost."""
