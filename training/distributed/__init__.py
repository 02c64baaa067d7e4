"""What ranks exchange: gradients, votes, signs of life."""
