"""The report of a campaign: words and pictures."""
