"""What differs between engines: launch arguments, metric names, health, drain."""
