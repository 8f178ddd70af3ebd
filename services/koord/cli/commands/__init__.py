"""One file a command: parse, call, print. What is slow to import is imported inside."""
