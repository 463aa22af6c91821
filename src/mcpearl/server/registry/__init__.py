"""What a server offers: tools, resources, prompts and templates, and how they are called."""
