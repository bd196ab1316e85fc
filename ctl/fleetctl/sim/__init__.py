"""A fleet under virtual time: the live fleet's own dispatch and decisions, with engines, nodes and clients that are computed."""
