"""What keeps foreign code apart from this machine: the one trial of it that the doctor and the grader rest on."""
