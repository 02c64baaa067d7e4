"""A blind test: a hidden fault slows one of two equal launches down, and analysis must name its cause."""
