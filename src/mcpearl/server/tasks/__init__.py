"""Tasks of a server: tools that continue after their request was answered.

`options` is what a tool declares, `engine` owns the tasks of a process, `run` is one running tool,
`journal` what is stored of it, `views` the two shapes on the wire, `feed` the listeners, and
`extension` has the methods, and decides at `tools/call` whether a call becomes a task.
"""
