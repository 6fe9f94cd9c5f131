"""`python contrib/bench ACTION`: Python puts this folder in front of its path."""

import sys

from octavo_serving_costs.command import main

if __name__ == "__main__":
    sys.exit(main())
