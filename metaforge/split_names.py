"""The three splits, and the words that data have for them. Plain Python."""

from __future__ import annotations

SPLITS = ("train", "val", "test")
#: Words for each split, and its position in ``SPLITS``.
MEANINGS = {
    word: number
    for number, words in enumerate(
        [
            ("0", "train", "training"),
            ("1", "val", "valid", "validation", "dev"),
            ("2", "test", "testing"),
        ]
    )
    for word in words
}


def split_named(word: str) -> str | None:
    """The split that a word means, in any case; None for other words, numbers among them."""
    return (
        None if word.isdigit() or word.lower() not in MEANINGS else SPLITS[MEANINGS[word.lower()]]
    )
