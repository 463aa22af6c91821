"""Who is asking, and how to log in."""
