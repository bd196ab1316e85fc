"""The data plane: one OpenAI-compatible door in front of the lanes."""
