"""The client's side: discovery, grants, tokens, and where they are stored."""
