"""The engine against the plain reference (tests/reference/scheduler): thousands of random clusters, bit for bit."""
