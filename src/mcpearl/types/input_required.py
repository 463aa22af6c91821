"""Input required: a server answers with questions, and the client asks again with the answers."""

from mcpearl.types.base import Result
from mcpearl.types.elicitation import ElicitRequest
from mcpearl.types.roots import ListRootsRequest
from mcpearl.types.sampling import CreateMessageRequest

InputRequest = CreateMessageRequest | ListRootsRequest | ElicitRequest
InputRequests = dict[str, InputRequest]


class InputRequiredResult(Result, kw_only=True):
    """What the server needs before it can go on, and a state to hand back unread."""

    input_requests: InputRequests | None = None
    request_state: str | None = None
