"""The cluster that runs are made on, and how to talk to it."""
