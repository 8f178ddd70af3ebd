"""The scheduler's own plugins, one file each, in the words and numbers of the upstream ones (spec 10 section 3.15)."""
