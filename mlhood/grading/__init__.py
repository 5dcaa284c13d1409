"""Tasks, checks, submissions and marks."""
