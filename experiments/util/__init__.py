"""What knows nothing of matrices, clusters and campaigns."""
