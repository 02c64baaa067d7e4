"""The exception for problems that the user can fix."""


class UserError(Exception):
    """Its text is one sentence (or a few lines) that says what is wrong, where, and what to do."""
