"""Calls of frameworks, each as the products that it stands for."""
