"""The data plane: one OpenAI-compatible endpoint in front of the lanes."""
