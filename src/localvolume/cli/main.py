"""The command `localvolume`: one subcommand per module beside this one."""


def main() -> int:
    return 0
