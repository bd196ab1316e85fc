"""What engine packages share: command lines, precisions, warming, and reading metrics pages."""
