"""One module for each section of the report."""
