"""What the CLI, the TUI and runbooks call: returns values, prints nothing."""
