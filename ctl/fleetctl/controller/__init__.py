"""observe -> reconcile -> apply."""
