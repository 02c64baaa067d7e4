"""Every figure of a campaign, as numbers."""
