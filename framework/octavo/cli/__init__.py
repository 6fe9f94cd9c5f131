"""The `octavo` command: a table of subcommands, each a module that loads when it is asked for."""
