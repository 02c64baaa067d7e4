"""The one exception for what a person can put right."""


class UserError(Exception):
    """Its text is one sentence (or a few lines) that says what is wrong, where, and what to do."""
