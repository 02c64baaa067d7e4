"""What runs are made on, and how one talks to it."""
