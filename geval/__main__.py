"""`python -m geval` is the `geval` command."""

from geval.cli import main

main()
