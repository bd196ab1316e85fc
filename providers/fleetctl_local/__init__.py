"""The local provider: replicas as processes on this machine."""
