"""The decisions: pure functions over the nouns."""
