"""`python -m occupancy_lab` is `occupancy-lab`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working folder there, whose random.py is not the one that is meant.
        del sys.path[0]
    from occupancy_lab.cli import main

    main(prog_name="occupancy-lab")
