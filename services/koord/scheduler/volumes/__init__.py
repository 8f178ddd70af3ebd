"""Volumes: which claims a pod uses, from which nodes their volumes can be reached, and which volume a claim gets."""
