"""Many servers in one program: reads configuration files of hosts, and connects to their servers."""
