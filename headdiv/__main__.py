"""`headdiv …` and `python -m headdiv …`: the command line of the companion, in a warm process where there is one."""

import sys


def main() -> None:
    """Run the command line; without what it needs, say which extra installs that (status 2)."""
    from headdiv.companion.experiments import warm

    serves = len(sys.argv) > 2 and sys.argv[1] == warm.SERVE
    if not serves and (status := warm.ask()) is not None:
        sys.exit(status)
    try:
        from headdiv.companion.command_line import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headdiv"):
            raise
        print(f"headdiv: {error.name} is not installed; this needs pip install 'headdiv[pipeline]'", file=sys.stderr)
        sys.exit(2)
    warm.serve(run) if serves else run()


if __name__ == "__main__":
    main()
