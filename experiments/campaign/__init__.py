"""One matrix on one cluster: its plan and identity, its runs, how it is resumed."""
