"""`python -m mlagen`."""

from mlagen.cli.main import main

main()
