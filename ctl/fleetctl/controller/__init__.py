"""observe -> reconcile -> apply: the process that keeps one fleet."""
