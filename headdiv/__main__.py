"""`python -m headdiv` is the command line of the companion."""

from headdiv.companion.command_line import main

if __name__ == "__main__":
    main()
