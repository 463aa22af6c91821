"""Many servers in one program: configuration files of hosts, and the connections they lead to."""
