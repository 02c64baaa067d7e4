"""Matrices: the requested runs, as a user writes them."""
