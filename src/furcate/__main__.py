"""Run the command line as ``python -m furcate``."""

from furcate.cli import main

if __name__ == "__main__":
    main()
