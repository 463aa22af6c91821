"""The console: a page in the browser that shows a server at work and tries what it offers."""
