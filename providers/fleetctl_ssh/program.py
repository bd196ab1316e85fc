"""The program of `on_host`, as it is sent to a machine: its modules as text, before the call itself."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

_PACKAGE = "fleetctl_ssh.on_host"
_DIRECTORY = Path(__file__).with_name("on_host")
_MODULES = ("clocks", "processes", "records", "machine", "supervisor", "calls")  # each before those that import it
# Nothing is installed there, so nothing there can be of another version.
LOADER = """
import json,sys,types
c=json.load(sys.stdin)
for n,t in c[0]:
 m=types.ModuleType(n);m.__path__=[];sys.modules[n]=m;exec(compile(t,n,"exec"),m.__dict__)
 p,_,a=n.rpartition(".")
 if p:setattr(sys.modules[p],a,m)
json.dump(m.answer(c[1],c[2]),sys.stdout)
""".strip()


def with_call(name: str, call: dict[str, Any]) -> bytes:
    """Return what is written to the loader: the modules, and a call of them."""
    return json.dumps([_modules(), name, call]).encode()


@lru_cache(maxsize=1)
def _modules() -> list[tuple[str, str]]:
    package, _, _ = _PACKAGE.rpartition(".")
    texts = [(f"{_PACKAGE}.{name}", (_DIRECTORY / f"{name}.py").read_text()) for name in _MODULES]
    return [(package, ""), (_PACKAGE, ""), *texts]
