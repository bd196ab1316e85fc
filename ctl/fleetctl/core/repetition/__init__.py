"""Answers that repeat themselves: when text is a loop, and when it repeats rightfully."""
