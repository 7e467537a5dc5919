"""Choices that need a cost or an error: of schemes, plans, strategies and slices of K."""
