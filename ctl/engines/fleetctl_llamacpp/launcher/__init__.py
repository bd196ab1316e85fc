"""The launcher of xllamacpp's server: a script in a directory, run by a Python that need not be fleetctl's."""
