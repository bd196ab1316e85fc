"""Where a continuation's text meets what was delivered before: nothing twice, and no stop string run past."""

from __future__ import annotations


class Seam:
    """Joins the first of a continuation's text on. Texts are as the client sees them."""

    __slots__ = ("_held", "_stops", "_tail", "_unsent", "stopped_by")

    def __init__(self, delivered: str, *, unsent: str, stops: tuple[str, ...]) -> None:
        """`unsent` is the white space at the end of what was delivered that the engine was not sent."""
        self._unsent = unsent
        self._stops = tuple(stop for stop in stops if len(stop) > 1)
        longest = max((len(stop) for stop in self._stops), default=0)
        self._tail = delivered[-(longest - 1) :] if longest else ""
        self._held = ""
        self.stopped_by = ""  # the stop string that was found across the seam: the answer is over

    @property
    def is_closed(self) -> bool:
        """Whether text passes as it is from now on."""
        return not self._unsent and not self._tail

    def join(self, text: str, *, is_last: bool) -> str:
        """Return what of a continuation's next text is to be passed on now."""
        text = self._without_repeated(text)
        if not self._tail or not text:
            return self._release() + text if is_last or not self._tail else text
        self._held += text
        joined = self._tail + self._held
        for start in range(len(self._tail)):
            rest = joined[start:]
            found = next((stop for stop in self._stops if rest.startswith(stop)), "")
            if found:
                self.stopped_by, self._held, self._tail = found, "", ""
                return ""
            if not is_last and any(stop.startswith(rest) for stop in self._stops):
                return ""
        # No stop string begins in what was delivered: those that begin later are the engine's to find.
        self._tail = ""
        return self._release()

    def _without_repeated(self, text: str) -> str:
        """Return the text without the white space that was delivered already: an engine goes on from trimmed text."""
        while self._unsent and text:
            if text[0] != self._unsent[0]:
                self._unsent = ""
                return text
            text, self._unsent = text[1:], self._unsent[1:]
        return text

    def _release(self) -> str:
        text, self._held = self._held, ""
        return text
