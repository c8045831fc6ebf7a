"""How a command says that it cannot go on: one sentence and an exit code. run.py prints them."""


class Failed(Exception):
    """The command line is right, but it cannot be done: exit 1."""

    exit_code = 1


class WrongInput(Failed):
    """The command line or a file it names is wrong: exit 2."""

    exit_code = 2
