"""What PyTorch runs for an operator: a router to the libraries that it calls."""
