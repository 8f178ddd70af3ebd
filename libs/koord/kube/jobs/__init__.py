"""Job kinds: pod sets, suspend switch, progress and start patches, each kind once. ``registry`` lists them."""
