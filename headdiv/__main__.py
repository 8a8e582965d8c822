"""`python -m headdiv`."""

from headdiv.cli import main

main()
