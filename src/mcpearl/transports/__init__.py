"""Moving messages. A transport knows bytes and framing, and nothing of what a message means."""
