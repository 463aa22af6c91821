"""The version of the package, for the build and for `serverInfo`."""

__version__ = "0.1.0"
