"""`longboat`, and `python -m longboat`: loads the command line, so that Ctrl-C meanwhile is no traceback."""

import os
import signal


def main() -> None:
    """Run the command line. While it is being loaded Ctrl-C leaves at once: nothing has been done yet."""
    before = signal.signal(signal.SIGINT, _leave)
    from longboat.cli.main import main as enter

    signal.signal(signal.SIGINT, before)
    enter()


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(130)  # an exception in the middle of an import may be swallowed there


if __name__ == "__main__":
    main()
