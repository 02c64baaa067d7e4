"""What is asked for: matrices, as a person writes them."""
