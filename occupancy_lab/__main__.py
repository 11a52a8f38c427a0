"""`python -m occupancy_lab` is `occupancy-lab`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working folder first, where a random.py would hide the standard library's.
        del sys.path[0]
    from occupancy_lab.cli import main

    main(prog_name="occupancy-lab")
