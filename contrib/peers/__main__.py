"""`python contrib/peers COMMAND`: Python puts this folder in front of its path."""

import sys

from octavo_peers.command import main

if __name__ == "__main__":
    sys.exit(main())
