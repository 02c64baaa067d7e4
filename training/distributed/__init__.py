"""What ranks tell one another: gradients, votes, signs of life."""
