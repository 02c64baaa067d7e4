"""Data of any workload: prepared once, and shared out to the ranks, step by step."""
