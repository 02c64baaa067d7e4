"""What is trained: one package for each workload, with its settings and its code.

To add one of your own, see docs/adding-a-workload.md: it may lie beside a matrix.
"""
