"""The edge: YAML to nouns, errors with file:line:key, the JSON Schema."""
