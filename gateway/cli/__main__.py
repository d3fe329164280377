"""`python -m gateway.cli` is the `turnout` command."""

from gateway.cli import main

main()
