"""What the playbooks ask of a Determined master, by way of Determined's own SDK (0.38.1)."""
