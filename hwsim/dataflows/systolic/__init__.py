"""Systolic arrays: weights, outputs or inputs stay in the processing elements. It knows no scheme and no cycles."""
