/* Answers points on stdin with what NVIDIA's cuda_occupancy.h says of them on stdout.

   Arguments: the fields of cudaOccDeviceProp, in their order.
   A point: threads, registers a thread, static and dynamic shared memory, barriers.
   An answer: the error, the active blocks, and the limit that each resource sets.
   All are 32-bit integers in the machine's own byte order. */

#include <cuda_occupancy.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROPERTIES = 12 };

int main(int count, char **texts)
{
    int numbers[PROPERTIES];
    int point[5];
    if (count != PROPERTIES + 1)
        return 1;
    for (int at = 0; at < PROPERTIES; at++)
        numbers[at] = atoi(texts[at + 1]);

    const cudaOccDeviceProp device = {
        .computeMajor = numbers[0],
        .computeMinor = numbers[1],
        .maxThreadsPerBlock = numbers[2],
        .maxThreadsPerMultiprocessor = numbers[3],
        .regsPerBlock = numbers[4],
        .regsPerMultiprocessor = numbers[5],
        .warpSize = numbers[6],
        .sharedMemPerBlock = numbers[7],
        .sharedMemPerMultiprocessor = numbers[8],
        .numSms = numbers[9],
        .sharedMemPerBlockOptin = numbers[10],
        .reservedSharedMemPerBlock = numbers[11],
    };
    const cudaOccDeviceState state = {
        .cacheConfig = CACHE_PREFER_NONE,
        .carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT,
    };

    while (fread(point, sizeof point, 1, stdin) == 1) {
        const cudaOccFuncAttributes kernel = {
            .maxThreadsPerBlock = device.maxThreadsPerBlock,
            .numRegs = point[1],
            .sharedSizeBytes = point[2],
            .partitionedGCConfig = PARTITIONED_GC_OFF,
            .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
            .maxDynamicSharedSizeBytes = point[3],
            .numBlockBarriers = point[4],
        };
        cudaOccResult result = {0};
        const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &device, &kernel, &state, point[0], point[3]);
        const int answer[] = {
            error,
            result.activeBlocksPerMultiprocessor,
            result.blockLimitWarps,
            result.blockLimitRegs,
            result.blockLimitSharedMem,
            result.blockLimitBlocks,
            result.blockLimitBarriers,
        };
        if (fwrite(answer, sizeof answer, 1, stdout) != 1)
            return 1;
    }
    return ferror(stdin);
}
