"""What expressions may cost, in Kubernetes' units (of about 50 ns), and how large things can be."""

CALL_LIMIT = 2_000_000
"""The most that one evaluation may cost (Kubernetes: a million, without what is dear in this evaluator alone)."""
BUDGET = 4_000_000
"""The most that all rules of one object, or all policies or webhooks' conditions of one write, may cost."""
MOST_SECONDS = 0.5
"""The CPU time that they may take, whatever they were thought to cost: nobody else is served meanwhile."""
MOST_RULES = 500
"""The most rules that a definition, and expressions that a policy, may have: each takes 0.1 to 2 ms to compile."""
RULE_LIMIT = 10_000_000
"""The most that a rule of a definition may cost by its estimate."""
DEFINITION_LIMIT = 100_000_000
"""The most that all rules of one version may cost by their estimates."""
MOST = (1 << 64) - 1
"""The cost of what has no bound."""
REQUEST_BYTES = 3 * 1024 * 1024
"""The largest request: what Kubernetes takes for the size of everything that is not bounded."""
