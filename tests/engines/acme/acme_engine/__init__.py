"""Acme as an engine of fleetctl: a package of somebody else's, as it would come in a wheel of its own."""
