"""`python -m headdiv` is the command line of the companion, in a warm process where there is one."""

import sys

from headdiv.companion.experiments.warm import ask


def main() -> None:
    """Entry point."""
    if (status := ask()) is not None:
        sys.exit(status)
    from headdiv.companion.command_line import main

    main()


if __name__ == "__main__":
    main()
