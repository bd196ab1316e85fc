"""A machine of its own as a host: a head that the provider makes, reached through ssh."""
