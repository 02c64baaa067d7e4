"""What to run, running it, run records, and the report. It knows `training` only by its run specification."""
