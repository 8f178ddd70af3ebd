"""Gangs: who belongs together, how many are needed, and planning them whole."""
