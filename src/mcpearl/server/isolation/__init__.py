"""Tools that run in processes of their own: the server's side of a call, and the process's."""
