"""The one door to the API server: lists and watches once and publishes; executes the decisions of the others."""
