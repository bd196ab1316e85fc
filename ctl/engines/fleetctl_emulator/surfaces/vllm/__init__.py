"""vLLM 0.32 from outside: routes, errors, overload and metrics."""
