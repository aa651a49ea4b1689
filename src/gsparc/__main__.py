"""``python -m gsparc``: the same as the command ``gsparc``."""

from gsparc.cli import main

if __name__ == "__main__":
    main()
