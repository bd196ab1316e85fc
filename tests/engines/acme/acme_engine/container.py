"""Acme's image."""

from __future__ import annotations

from fleetctl.ports.engine import ContainerImage

IMAGE = ContainerImage(image="registry.acme.example/server:7", entrypoint=("acme-serve",), replaces=3, models="/models")
