"""SGLang 0.5.23 from outside: routes, errors, overload and metrics."""
