"""What only maintainers run, each by one command: `python -m tests.tools.NAME`."""
