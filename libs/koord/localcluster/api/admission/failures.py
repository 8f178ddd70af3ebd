"""Why a webhook gave no verdict."""


class CallFailed(Exception):
    """A webhook could not be asked; says why."""


class BadAnswer(Exception):
    """An answer that cannot be used; says why."""
