// Record h200_clusters.csv on an H200: nvcc -arch=sm_90 -o clusters h200_clusters.cu && ./clusters
//
// For each number of CTAs that fit an SM and each size of a cluster: the clusters that the driver
// says the GPU holds, and how many ran at once. Prints ctas_per_sm,num_ctas,driver,resident.
#include <algorithm>
#include <cstdio>

typedef unsigned long long Time;

__device__ Time now() {
  Time time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void wait(Time *starts, Time nanoseconds) {
  Time start = now();
  if (threadIdx.x == 0) starts[blockIdx.x] = start;
  while (now() < start + nanoseconds) {
  }
}

int main() {
  const int most_ctas = 16384, threads[] = {1024, 512, 256, 224, 192, 160, 128, 64};
  const int shared[] = {0, 20000, 40000, 75000, 232448};
  Time *starts;
  cudaMallocManaged(&starts, most_ctas * sizeof(Time));
  cudaFuncSetAttribute(wait, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448);
  cudaFuncSetAttribute(wait, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  puts("ctas_per_sm,num_ctas,driver,resident");
  for (int block : threads)
    for (int bytes : shared)
      for (int size = 1; size <= 16; size++) {
        int fit, driver = -1, resident = 0;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, wait, block, bytes);
        cudaLaunchAttribute attributes[2];
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim = {(unsigned)size, 1, 1};
        attributes[1].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
        attributes[1].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
        cudaLaunchConfig_t config = {};
        config.gridDim = std::min(most_ctas / size, fit * 140 / size + 8) * size;
        config.blockDim = block;
        config.dynamicSmemBytes = bytes;
        config.attrs = attributes;
        config.numAttrs = 2;
        cudaOccupancyMaxActiveClusters(&driver, wait, &config);
        cudaLaunchKernelEx(&config, wait, starts, (Time)3000000);
        cudaDeviceSynchronize();
        int ctas = config.gridDim.x;
        Time first = *std::min_element(starts, starts + ctas);
        for (int cta = 0; cta < ctas; cta++) resident += starts[cta] < first + 2000000;
        printf("%d,%d,%d,%d\n", fit, size, driver, resident / size);
      }
}
