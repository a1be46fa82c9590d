"""What a bench has found and how it is told: on the terminal, in a document, as JSON, as a page."""
