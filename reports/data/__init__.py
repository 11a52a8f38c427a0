"""What was measured and recorded, installed as `occupancy_lab.recorded`.

The files of the H200 and the H100 are those of reports/record_measurements.py, and the H200's also
of reports/record_driver.py. The H100's were recorded in November 2026 on one H100 80GB HBM3 with
Triton 3.6.0, torch 2.11.0 and driver 580.159.04.

copies-h200.csv has plain copies of 36 matrices that were drawn and timed once the prediction of a
copy was fixed: by `measure_launches` on an H200, 2026-11-23, torch 2.11.0, driver 580.159.04.

narrow-copies-h200.csv has the cycles of 80 copies from the L1 cache to shared memory: by
reports/record_copies.py on an H200, 2026-11-29, torch 2.11.0, driver 580.159.04.

units-h100.json and units-h200.json are what `occupancy-lab calibrate --json` writes of such a GPU.

pieces-h200.csv has 128 launches that read or write short pieces of device memory: by
reports/record_pieces.py on an H200, 2026-11-30, torch 2.11.0, Triton 3.6.0, driver 580.159.04.
"""
