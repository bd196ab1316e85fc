"""HTTP requests of tests that send many."""

from __future__ import annotations

import httpx

# A client that is made for one request reads the machine's certificate authorities for it, which takes a core 60 ms; each of these
# still has a connection of its own. It may be used by several threads.
SENDER = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), trust_env=False)
