"""What the replicas of lanes are started out of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.model.pinned_image import PinnedImage


def image_lines(found: Iterable[tuple[str, PinnedImage | None]]) -> Iterator[str]:
    """Yield each image once with the lanes that start it; nothing of lanes whose image is not pinned."""
    lanes: dict[PinnedImage, list[str]] = {}
    for lane, image in found:
        if image is not None:
            lanes.setdefault(image, []).append(lane)
    for image, names in lanes.items():
        yield f"{', '.join(names)}: {image}"
