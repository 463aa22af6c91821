"""The tools, resources and prompts that are registered with a server, and how they are called."""
