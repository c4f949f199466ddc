"""Files wrapped by a password or by document protection (DRM), told by their first bytes."""

from __future__ import annotations

from geval.locale import DataWords, united

_WRAPPERS: tuple[bytes, ...] = (b"SCDSA", b"DRMONE", b"DOCUMENT SAFER", b"Fasoo", b"NASCA DRM")


def protection(start: bytes) -> str | None:
    """What protects a file that begins with `start` (512 bytes will do); None for nothing known."""
    if any(mark in start[:128] for mark in _WRAPPERS):
        return "is protected by DRM and cannot be read"
    return None


def remove_protection() -> str:
    """How such a file is opened to others, in every language: its locale cannot be read."""
    return f"{': '.join(united(DataWords).remove_protection)}."
