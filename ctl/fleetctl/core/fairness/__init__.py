"""Who gets how much of a lane, by tier and by client, where not all can be served."""
