"""Starts a program that takes long to load, as those of other SDKs do:

    prepared.py SHARING PROGRAM ARGUMENT…

The first start of a program leaves a process that has imported what the program imports. Each start with
the same word for SHARING is a fork of that process, with the open files, environment, folder and
arguments of the one that starts it, and ends with it. The process ends when no program runs and none was
started for some time.
"""

import marshal
import os
import signal
import socket
import sys
import time
import zlib  # and nothing that itself takes long to load

PATIENCE = 100.0  # seconds a program has to load its packages, beside other tests
IDLE = 20.0  # seconds after which a process that is not used ends
REQUEST = 1 << 20  # bytes that the environment and the arguments may have
OF_OURS = (  # what a server of ours loads when it is run
    *(
        "mcpearl.server.serving.run",
        "mcpearl.server.serving.supervised",
        "mcpearl.transports.stdio",
    ),
    *("mcpearl.server.registry.tools", "mcpearl.server.registry.resources"),
    *(
        "mcpearl.server.registry.prompts",
        "mcpearl.server.registry.encoded",
        "mcpearl.server.session",
    ),
    *("mcpearl.schema.signature", "mcpearl.schema.docstring", "mcpearl.schema.publish"),
    *("mcpearl.schema.with_msgspec", "mcpearl.server.blocking", "uvloop"),
)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Have the program run, and end as it ends."""
    sharing, program = sys.argv[1:3]
    request = marshal.dumps((sys.argv[2:], dict(os.environ), os.getcwd()))  # noqa: PTH109
    pid = b""
    while not pid:  # the process may be about to end
        line = _connect(program, sharing)
        try:
            socket.send_fds(line, [request], [0, 1, 2])
            pid = line.recv(100)
        except ConnectionError:
            pass
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(int(pid), number))
    code = os.waitstatus_to_exitcode(int(line.recv(100)))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _connect(program: str, sharing: str) -> socket.socket:
    """Return a connection to the process that holds the packages; start it if there is none."""
    changed = os.stat(program).st_mtime_ns  # noqa: PTH116
    modules = os.environ.get("PYTHONPATH", "")
    name = f"{sys.executable} {program} {changed} {sharing} {modules}"
    place = f"mcpearl-prepared-{zlib.crc32(name.encode()):08x}"
    started = False
    until = time.monotonic() + PATIENCE
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            line.connect(f"\0{place}")
            return line
        except OSError:
            line.close()
        if not started:
            started = True
            _start(program, place)
        assert time.monotonic() < until, f"{program} was not loaded within {PATIENCE:g} s"
        time.sleep(0.02)


def _start(program: str, place: str) -> None:
    """Start the process that holds the packages, as no child of this one: clients end those, too."""
    between = os.fork()
    if between == 0:
        nothing = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in (0, 1)]
        command = [sys.executable, __file__, "--hold", program, place]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=nothing, setsid=True)
        os._exit(0)
    os.waitpid(between, 0)


def hold(program: str, place: str) -> None:
    """Import what a program imports, and run it in forks of this process."""
    import ast
    import gc
    import importlib
    import runpy
    import threading
    from pathlib import Path

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(f"\0{place}")
        except OSError:
            return
        sys.path.insert(0, str(Path(__file__).parents[2]))  # programs import modules of the tests
        for node in ast.parse(Path(program).read_text()).body:
            if isinstance(node, ast.Import):
                for each in node.names:
                    importlib.import_module(each.name)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                module = importlib.import_module(node.module)
                for each in node.names:
                    getattr(
                        module, each.name, None
                    )  # which loads what a package loads when it is used
        for name in OF_OURS if "mcpearl" in sys.modules else ():
            importlib.import_module(name)
        assert threading.active_count() == 1, "a thread would be missing in the forks"
        gc.freeze()
        os.chdir("/")
        os.dup2(1, 2)
        listening.listen(100)
        started = _fork_for_each(listening)
    if started is not None:
        descriptors, (arguments, environment, folder) = started
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = arguments
        runpy.run_path(program, run_name="__main__")


Request = tuple[list[str], dict[str, str], str]


def _fork_for_each(listening: socket.socket) -> tuple[list[int], Request] | None:
    """Fork for each request. Return in a fork what it is to do, and in this process None at the end."""
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        running: dict[socket.socket, tuple[int, int]] = {}
        ended: dict[int, socket.socket] = {}
        while True:
            events = selector.select(None if running else IDLE)
            if not events and not running:
                return None
            for key, _ in events:
                found = key.fileobj
                if found is listening:
                    line, _ = listening.accept()
                    line.settimeout(PATIENCE)
                    try:
                        request, descriptors, _, _ = socket.recv_fds(line, REQUEST, 3)
                    except OSError:
                        request, descriptors = b"", []
                    if len(descriptors) < 3:
                        line.close()
                        continue
                    pid = os.fork()
                    if pid == 0:
                        for each, (_, watched) in running.items():
                            each.close()
                            os.close(watched)
                        line.close()
                        return descriptors, marshal.loads(request)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    _tell(line, pid)
                    watched = os.pidfd_open(pid)
                    running[line] = pid, watched
                    ended[watched] = line
                    selector.register(line, selectors.EVENT_READ)
                    selector.register(watched, selectors.EVENT_READ)
                elif isinstance(found, socket.socket):  # what started the program has ended
                    if found in running:
                        os.kill(running[found][0], signal.SIGKILL)
                        selector.unregister(found)
                elif found in ended:
                    line = ended.pop(found)
                    pid, watched = running.pop(line)
                    if line in selector.get_map():
                        selector.unregister(line)
                    selector.unregister(watched)
                    os.close(watched)
                    _, status = os.waitpid(pid, 0)
                    _tell(line, status)
                    line.close()


def _tell(line: socket.socket, number: int) -> None:
    """Send a number to what started a program, if that has not ended."""
    try:
        line.sendall(b"%d" % number)
    except OSError:
        pass


if __name__ == "__main__":
    if sys.argv[1] == "--hold":
        hold(sys.argv[2], sys.argv[3])
    else:
        main()
