"""Reviews: where they come from, how they become token ids, and who takes which in which step."""
