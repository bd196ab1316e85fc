"""What of this host runs on the head itself."""
