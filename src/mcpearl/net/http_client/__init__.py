"""The client's side of HTTP: a pool of connections, HTTP/1.1 and HTTP/2."""
