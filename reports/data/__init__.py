"""What was measured and recorded, and the calibrations, installed as `occupancy_lab.recorded`.

The H200's files are those of reports/record_measurements.py and reports/record_driver.py. The
H100's hold 259 launches of ten shapes, every num_warps x num_stages, measured for this project in
November 2026 on one H100 80GB HBM3 with Triton 3.6.0, torch 2.11.0 and triton.testing.do_bench
(median, L2 flushed): the tutorial's kernel, and one program per row with 32-bit offsets. Registers,
shared memory and programs per SM are the driver's. Which ptxas compiled them was not noted; the
other columns of a binary are those of CUDA 13.0's ptxas where it gives the same registers, shared
memory and programs (217 launches), and are empty elsewhere.

copies-h200.csv has plain copies of 36 matrices that were drawn and timed once the prediction of a
copy was fixed: by `measure_launches` on an H200, 2026-11-23, torch 2.11.0, driver 580.159.04.
"""
