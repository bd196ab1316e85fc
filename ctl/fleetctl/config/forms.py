"""Forms that a text in a profile or a runbook may be held to, each with what a message calls it."""

from __future__ import annotations

from typing import Final

VERSION_FORM: Final = r"^v?[0-9]+(\.[0-9A-Za-z]+)*([.+_-][0-9A-Za-z.+_-]*)?$"
HEADER_FORM: Final = r"^[A-Za-z0-9-]{1,64}$"
STEP_NAME_FORM: Final = r"^[a-z][a-z0-9_-]{0,39}$"
PARAMETER_NAME_FORM: Final = r"^[a-z][a-z0-9_]{0,39}$"
IMAGE_FORM: Final = r"^([a-z0-9][A-Za-z0-9._/:@-]*)?$"

FORMS: Final = {
    IMAGE_FORM: "an image such as registry.example.com/vllm:0.32.0",
    VERSION_FORM: "a version such as 0.32.0",
    HEADER_FORM: "an HTTP header's name: 1 to 64 letters, digits and hyphens",
    STEP_NAME_FORM: "a step's name: a small letter, then up to 39 small letters, digits, _ and -",
    PARAMETER_NAME_FORM: "a parameter's name: a small letter, then up to 39 small letters, digits and _",
}
