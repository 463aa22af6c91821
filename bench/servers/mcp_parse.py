"""The official Python SDK's parse of one message, per second. Runs in its environment.

``python mcp_parse.py <message> <count>`` prints the figure as JSON.
"""

import json
import sys
import timeit

from mcp_types import JSONRPCRequest, jsonrpc_message_adapter


def main(message: str, count: int) -> None:
    parse = jsonrpc_message_adapter.validate_json
    if not isinstance(parse(message, by_name=False), JSONRPCRequest):
        sys.exit("the message was not read as a request")
    timer = timeit.Timer("parse(message, by_name=False)", globals=locals())
    timer.timeit(count // 5)  # to warm up
    print(json.dumps(count / timer.timeit(count)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
