"""One file for each scorer: how well every candidate suits a request, in [0, 1], higher is better."""
