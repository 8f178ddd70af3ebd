"""What can go wrong with an expression: it does not compile, or it has no value."""


class CompileError(ValueError):
    """An expression that does not compile; the text is that of the real server, position and all."""


class EvaluationError(Exception):
    """An expression that has no value for what it was asked about."""


class CostError(EvaluationError):
    """An expression that would cost too much for what it was asked about; it was not evaluated."""


COST_EXCEEDED = "operation cancelled: actual cost limit exceeded"
