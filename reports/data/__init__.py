"""What was measured and recorded, and the calibrations, installed as `occupancy_lab.recorded`.

The H200's files are those of reports/record_measurements.py and reports/record_driver.py. The
H100's hold figures published for one H100 80GB HBM3, Triton 3.6.0, torch 2.11.0,
triton.testing.do_bench, L2 flushed: the GB/s of one read and one write of the matrix, as times.
"""
