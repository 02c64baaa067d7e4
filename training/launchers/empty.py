"""An empty program: what a stack takes to start it on every rank, and to end, is the stack's bare start.

torchrun ... training/launchers/empty.py

It is started by its path, so that nothing of this package is imported.
"""
