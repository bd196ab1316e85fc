"""Whose cached prefix was lost, where, and who took its memory."""
