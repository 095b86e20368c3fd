"""`python -m regraft`."""

from ._cli import main

main()
