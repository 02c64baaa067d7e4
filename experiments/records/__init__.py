"""Records of attempts at runs: their schema, how they are composed, whether the runs count."""
