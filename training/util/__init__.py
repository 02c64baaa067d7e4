"""What the rest builds on: files, digests, this process and its signals."""
