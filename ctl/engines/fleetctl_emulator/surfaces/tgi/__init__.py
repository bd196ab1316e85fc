"""TGI 3.3.7 from outside: routes, errors, overload and metrics."""
