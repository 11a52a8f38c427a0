"""`python -m occupancy_lab` is `occupancy-lab`."""

from occupancy_lab.cli import main

if __name__ == "__main__":
    main(prog_name="occupancy-lab")
