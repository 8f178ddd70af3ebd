"""Plain, slow, obvious implementations of the rules, to compare the fast ones with."""
