"""How a command fails: 1 for what went wrong, 2 for what was asked wrongly; both with one clear line."""


class CommandError(Exception):
    """It did not work; exit code 1."""

    code = 1


class UsageProblem(CommandError):
    """It was asked for wrongly; names the option, file or object and the rule; exit code 2."""

    code = 2
