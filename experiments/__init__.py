"""Matrices, campaigns, run records and reports. It knows `training` only by its run specification."""
