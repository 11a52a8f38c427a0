"""What was measured and recorded, and the calibrations, installed as `occupancy_lab.recorded`."""
