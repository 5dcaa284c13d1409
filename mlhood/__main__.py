"""`python -m mlhood`: the command line."""

from mlhood.cli import main

if __name__ == "__main__":
    main()
