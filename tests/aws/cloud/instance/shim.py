"""systemctl and systemd-run of an instance: asks its first process over a socket. Standard library alone: it starts often."""

import json
import socket
import sys


def main() -> int:
    """Send the command; print what comes back and return its status."""
    path, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(600)
        connection.connect(path)
        connection.sendall(json.dumps(command).encode() + b"\n")
        response = json.loads(connection.makefile("rb").readline())
    sys.stdout.write(response["output"])
    return int(response["status"])


if __name__ == "__main__":
    sys.exit(main())
