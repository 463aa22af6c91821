"""Tasks on the client's side: those it starts at a server, and those a legacy server starts here."""
