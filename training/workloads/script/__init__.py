"""A script of the user's own, which runs under torchrun as it is."""
