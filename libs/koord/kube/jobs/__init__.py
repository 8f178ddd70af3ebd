"""The job kinds: one file a kind, saying its pod sets, suspend switch, conditions and gang hints."""
