"""Represents a bench's results, and prints them as text, Markdown, JSON or HTML."""
