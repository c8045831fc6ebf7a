"""`python -m kohort.cli`, for where the `kohort` script is not on the path."""

from kohort.cli import main

main()
