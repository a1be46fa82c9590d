"""What the engines' files are made of, and how the rest of the router finds them."""
