"""Tasks of a server: tools that go on after their request was answered.

`options` is what a tool declares, `engine` owns the tasks of a process, `run` is one tool at work,
`journal` what is stored of it, `views` the two shapes on the wire, `feed` the listeners, and
`extension` the methods and what happens around `tools/call`.
"""
