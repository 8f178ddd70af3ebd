"""Ten thousand bent objects and messages against a whole running cluster: nobody dies, and each bad one is named."""
