"""LoadAwareScheduling: nodes are rated, and refused, by what they really use. Spec 10 section 3.11."""
