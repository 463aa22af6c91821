"""The command `mcpearl`. Nothing else imports this package.

A command is one file in `commands/`, named as the command is. It is found by its name: there is no list
to add it to (`main.SECTIONS` only says under which heading the help shows it). Its module docstring
begins with the line that `mcpearl --help` shows, and it has a `command`:

    \"\"\"Say whether a server answers.\"\"\"

    import click

    from mcpearl.cli.command import make_command
    from mcpearl.cli.output import CommandOutput
    from mcpearl.cli.target import ServerTarget, connected, target_options

    @make_command()
    @target_options
    @click.option("--count", default=1, help="How often to ask.")
    async def command(out: CommandOutput, target: ServerTarget, count: int) -> None:
        \"\"\"Say whether a server answers.\"\"\"
        async with connected(target, out) as client:
            await client.ping()
        out.show({"answered": True}, lambda: out.line("It answers."))

- The function may be async, and gets a `CommandOutput` first. `--json`, `--help` and Ctrl-C are handled
  for it.
- What it imports is loaded only when the command is used; what few of its runs need is imported inside
  functions.
- Results go to stdout by `out.show`; everything else (`out.note`, progress) goes to stderr.
- What fails raises: `CommandFailed` with an exit code of `exits.Exit`, or an error of mcpearl, for which
  `exits` has a code.
- `CommandOutput` cleans what it is passed: text of a server cannot control the terminal.
"""
