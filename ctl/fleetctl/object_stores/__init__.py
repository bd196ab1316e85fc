"""Where a state that many machines share may lie: one module a kind, reached by its URL's scheme."""
