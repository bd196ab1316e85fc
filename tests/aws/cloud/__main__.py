"""python -m tests.aws.cloud: one cloud of tests, until SIGTERM or the end of its standard input."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from tests.aws.cloud.server import make_cloud


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve; the first line of the standard output is the port."""
    parser = argparse.ArgumentParser(prog="tests.aws.cloud")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--region", action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--boot", action="store_true", help="instances boot: processes, addresses, metadata")
    parser.add_argument("--loopback", action="store_true", help="boot as where network namespaces are not allowed")
    options = parser.parse_args()
    server = make_cloud(
        host=options.host,
        port=options.port,
        regions=options.region or ["us-east-1"],
        seed=options.seed,
        boots=options.boot,
        loopback=options.loopback,
    )
    sys.stdout.write(f"{server.bind()}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_input, daemon=True).start()
    server.run()


if __name__ == "__main__":
    main()
