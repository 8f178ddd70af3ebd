"""Whole-system tests: ``koord up`` as users start it, kubectl and the CLI as clients, kills in the middle."""
