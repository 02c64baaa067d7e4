"""One thin module for each stack: how its ranks come to call the same training function."""
