"""The tutorial's example at 781 columns as Triton 3.7.1 compiles it, for tests of words."""

from occupancy_lab.values import Resources

H100 = Resources(
    n_regs=32,
    num_warps=8,
    shared=12320,
    local_bytes=0,
    barriers=1,
    pipeline_shared=12288,
    load_bytes=4,
    store_bytes=4,
)
H100_SINGLE = H100.replace(n_regs=29, shared=32, pipeline_shared=0)
MI300X = Resources(
    n_regs=22,
    num_warps=8,
    shared=32,
    local_bytes=0,
    sgprs=43,
    agprs=0,
    allocated_vgprs=24,
    vgpr_spills=0,
    sgpr_spills=0,
    pipeline_shared=0,
    load_bytes=4,
    store_bytes=4,
)
MI300X_SINGLE = MI300X.replace(n_regs=16, allocated_vgprs=16)
