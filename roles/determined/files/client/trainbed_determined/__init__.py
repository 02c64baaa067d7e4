"""The playbooks' client for a Determined master, based on Determined's own SDK (0.38.1)."""
