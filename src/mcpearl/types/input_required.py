"""Input required: a server answers a request with questions; the client repeats it with answers."""

from mcpearl.types.base import Result
from mcpearl.types.elicitation import ElicitRequest
from mcpearl.types.roots import ListRootsRequest
from mcpearl.types.sampling import CreateMessageRequest

InputRequest = CreateMessageRequest | ListRootsRequest | ElicitRequest
InputRequests = dict[str, InputRequest]


class InputRequiredResult(Result, kw_only=True):
    """What the server needs to continue, and an opaque state to send back."""

    input_requests: InputRequests | None = None
    request_state: str | None = None
