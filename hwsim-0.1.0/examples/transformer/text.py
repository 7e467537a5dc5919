"""Text to learn from: sentences of a small grammar and sums, made from a seed."""

import random

NOUNS = ["cat", "dog", "bird", "horse", "farmer", "baker", "child", "queen", "river", "mountain", "garden", "engine"]
VERBS = ["sees", "follows", "finds", "paints", "carries", "answers", "hears", "watches"]
ADJECTIVES = ["old", "small", "bright", "quiet", "green", "heavy", "sudden", "gentle"]
PLACES = ["by the river", "in the garden", "under the bridge", "near the old mill", "at the station"]


def phrase(rng):
    words = ["the", *([rng.choice(ADJECTIVES)] if rng.random() < 0.5 else []), rng.choice(NOUNS)]
    return " ".join(words)


def sentence(rng):
    if rng.random() < 0.25:
        x, y = rng.randrange(100), rng.randrange(100)
        return f"{x} and {y} make {x + y}."
    place = f" {rng.choice(PLACES)}" if rng.random() < 0.4 else ""
    return f"{phrase(rng)} {rng.choice(VERBS)} {phrase(rng)}{place}."


def text(characters, seed=0):
    """About so many characters of sentences."""
    rng = random.Random(seed)
    parts, size = [], 0
    while size < characters:
        parts.append(sentence(rng))
        size += len(parts[-1]) + 1
    return " ".join(parts)
