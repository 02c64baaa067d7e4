"""`python -m experiments`: see `python -m experiments --help`."""

import sys

from experiments.cli import main

sys.exit(main())
