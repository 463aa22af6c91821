"""What a server or client exports about itself: counters, Prometheus text, OpenTelemetry, logs."""
