"""What expressions may cost, in Kubernetes' units (of about 50 ns), and how large things can be."""

CALL_LIMIT = 1_000_000
"""The most that one evaluation may cost."""
BUDGET = 10_000_000
"""The most that all rules of one object may cost."""
RULE_LIMIT = 10_000_000
"""The most that a rule of a definition may cost by its estimate."""
DEFINITION_LIMIT = 100_000_000
"""The most that all rules of one version may cost by their estimates."""
MOST = (1 << 64) - 1
"""The cost of what has no bound."""
REQUEST_BYTES = 3 * 1024 * 1024
"""The largest request: what Kubernetes takes for the size of everything that is not bounded."""
