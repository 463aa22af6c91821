"""Many servers behind one endpoint, whatever eras both sides speak: each is a part of a server."""
