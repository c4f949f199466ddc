"""Text of tokens, which may hold half a character: lone surrogates stand for its bytes."""

from __future__ import annotations


def encode(text: str) -> bytes:
    """The bytes of a token text, halves of characters included."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a UTF-16 pair, from a server's JSON
        return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """Inverse of `encode` for whatever a tokenizer cuts."""
    return data.decode("utf-8", "surrogateescape")
