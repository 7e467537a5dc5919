"""The product of given operands under a resolved record: once, prepared, or again and again."""
