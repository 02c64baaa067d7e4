"""What the rest stands on: files, digests, this process and its signals."""
