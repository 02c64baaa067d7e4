"""What is kept of an attempt at a run: its schema, how it is composed, whether it counts."""
