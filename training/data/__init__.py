"""Reviews: where they come from, how they become token ids, and which rank takes which in each step."""
