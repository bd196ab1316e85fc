"""The known GPUs and models: shipped files and the user's own, read without pydantic."""
