"""Many servers behind one endpoint: each is a part of a server, whichever era either side speaks."""
