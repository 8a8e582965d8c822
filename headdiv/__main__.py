"""`headdiv …` and `python -m headdiv …`: the command line of the companion."""

import sys


def main() -> None:
    """Run the command line; without what it needs, say which extra installs that (status 2)."""
    try:
        from headdiv.companion.command_line import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headdiv"):
            raise
        print(f"headdiv: {error.name} is not installed; this needs pip install 'headdiv[pipeline]'", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
