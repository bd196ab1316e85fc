"""The nouns: frozen values, no IO."""
