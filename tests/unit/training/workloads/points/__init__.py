"""A workload as a user has it, in a folder of its own."""
