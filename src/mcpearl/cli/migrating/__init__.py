"""Programs of FastMCP and the official SDK, rewritten for mcpearl.

The text is changed where names, imports and calls are; everything else stays as it was written. What has
no counterpart is left in place and listed, so that it is noticed.
"""
