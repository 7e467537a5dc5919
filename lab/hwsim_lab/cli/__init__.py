"""The laboratory's verbs of the command line."""
