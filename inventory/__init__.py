"""Inventories, and the command that writes one (`new`)."""
