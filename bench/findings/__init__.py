"""A bench's results, and their output on the terminal, as Markdown, as JSON and as HTML."""
