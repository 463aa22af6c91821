"""What is registered with a server (tools, resources, prompts), and how it is called."""
