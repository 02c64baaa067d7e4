"""What is measured while a rank trains, and where the figures go."""
