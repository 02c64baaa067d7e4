"""Helpers that know nothing of matrices, clusters and campaigns."""
