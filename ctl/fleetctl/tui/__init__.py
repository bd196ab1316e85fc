"""The live face."""
