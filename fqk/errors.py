"""The one error that a user can cause."""


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong and what is accepted (exit status 2)."""
