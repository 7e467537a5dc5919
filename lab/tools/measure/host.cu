// The C interface: find a kernel by index, run it, time launches. Every call gives 0 or a CUDA error.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "common.cuh"
#include "table.h"

#define TABLES(X) X(arithmetic_0) X(arithmetic_1) X(arithmetic_2) X(arithmetic_3) X(shared_kernels) X(memory_kernels)
#define DECLARE(NAME) extern const Entry NAME[]; extern const int NAME##_count;
TABLES(DECLARE)

static const Entry *find(int index) {
#define STEP(NAME) if (index < NAME##_count) return NAME + index; index -= NAME##_count;
  TABLES(STEP)
  return nullptr;
}
#define TRY(CALL) if (cudaError_t e = (CALL)) return (int)e;

struct Launch {
  int grid, block, shared, cluster;
};
struct Tensor {  // a matrix of two-byte elements for TMA; rows 0: none
  uint64_t address, columns, rows, box_rows;
};

static int configure(const Entry *entry, const Launch &l, cudaLaunchConfig_t &config, cudaLaunchAttribute *attribute,
                     cudaStream_t stream) {
  if (l.shared > 48 * 1024)
    TRY(cudaFuncSetAttribute(entry->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l.shared))
  config = {};
  config.gridDim = dim3(l.grid);
  config.blockDim = dim3(l.block);
  config.dynamicSmemBytes = l.shared;
  config.stream = stream;
  if (l.cluster > 1) {
    if (l.cluster > 8) TRY(cudaFuncSetAttribute(entry->kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1))
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim = {(unsigned)l.cluster, 1, 1};
    config.attrs = attribute;
    config.numAttrs = 1;
  }
  return 0;
}

static int encode(const Tensor &t, CUtensorMap *map) {
  memset(map, 0, sizeof *map);
  if (!t.rows) return 0;
  void *address = nullptr;
  cudaDriverEntryPointQueryResult found;
  TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found))
  auto encode = (CUresult(*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                             const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                             CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))address;
  cuuint64_t sizes[2] = {t.columns, t.rows}, pitch[1] = {t.columns * 2};
  cuuint32_t box[2] = {64, (cuuint32_t)t.box_rows}, steps[2] = {1, 1};
  return (int)encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)t.address, sizes, pitch, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

extern "C" {
const char *measure_name(int index) { const Entry *e = find(index); return e ? e->name : nullptr; }
int measure_work(int index) { return find(index)->work; }
const char *measure_error(int code) { return cudaGetErrorString((cudaError_t)code); }
int measure_device(char *name, int length, int numbers[8]) {
  cudaDeviceProp p;
  TRY(cudaGetDeviceProperties(&p, 0))
  strncpy(name, p.name, length);
  numbers[0] = p.major * 10 + p.minor, numbers[1] = p.multiProcessorCount, numbers[2] = p.l2CacheSize;
  numbers[3] = (int)p.sharedMemPerBlockOptin, numbers[4] = (int)(p.totalGlobalMem >> 20);
  TRY(cudaDriverGetVersion(numbers + 5))
  TRY(cudaRuntimeGetVersion(numbers + 6))
  numbers[7] = p.regsPerMultiprocessor;
  return 0;
}
int measure_alloc(size_t bytes, void **out) { return (int)cudaMalloc(out, bytes); }
int measure_free(void *p) { return (int)cudaFree(p); }
int measure_fetch(void *host, const void *device, size_t bytes) {
  return (int)cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}
// Runs once; ms: time between events around it.
int measure_run(int index, const Args *args, const Tensor *tensor, const Launch *launch, float *ms) {
  const Entry *entry = find(index);
  static cudaEvent_t start = nullptr, stop = nullptr;
  if (!start) {
    TRY(cudaEventCreate(&start))
    TRY(cudaEventCreate(&stop))
  }
  CUtensorMap map;
  if (int e = encode(*tensor, &map)) return e;
  cudaLaunchConfig_t config;
  cudaLaunchAttribute attribute;
  if (int e = configure(entry, *launch, config, &attribute, 0)) return e;
  void *parameters[] = {(void *)args, &map};
  TRY(cudaEventRecord(start))
  TRY(cudaLaunchKernelExC(&config, entry->kernel, parameters))
  TRY(cudaEventRecord(stop))
  TRY(cudaDeviceSynchronize())
  TRY(cudaEventElapsedTime(ms, start, stop))
  return (int)cudaGetLastError();
}
// Runs `index` while `spy` (started first, on another stream) is on the device too.
int measure_run_beside(int index, const Args *args, const Launch *launch, int spy, const Args *spy_args,
                       const Launch *spy_launch) {
  static cudaStream_t streams[2] = {nullptr, nullptr};
  for (auto &stream : streams)
    if (!stream) TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))
  CUtensorMap map = {};
  for (int i = 0; i < 2; i++) {
    const Entry *entry = find(i ? index : spy);
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attribute;
    if (int e = configure(entry, i ? *launch : *spy_launch, config, &attribute, streams[i])) return e;
    void *parameters[] = {(void *)(i ? args : spy_args), &map};
    TRY(cudaLaunchKernelExC(&config, entry->kernel, parameters))
  }
  TRY(cudaDeviceSynchronize())
  return (int)cudaGetLastError();
}
// `count` launches; how 0: one after another on a stream (us per launch between events), 1: as nodes of a graph,
// median of `repeats` replays (us per launch); 2: one launch, then a wait, by the host's clock (us, median of count).
// args->out moves on by `step` words from launch to launch.
int measure_launches(int index, const Args *args, const Launch *launch, int how, int count, int repeats, int64_t step,
                     double *us) {
  const Entry *entry = find(index);
  cudaStream_t stream;
  cudaEvent_t start, stop;
  TRY(cudaStreamCreate(&stream))
  TRY(cudaEventCreate(&start))
  TRY(cudaEventCreate(&stop))
  cudaLaunchConfig_t config;
  cudaLaunchAttribute attribute;
  if (int e = configure(entry, *launch, config, &attribute, stream)) return e;
  CUtensorMap map = {};
  Args mine = *args;
  void *parameters[] = {&mine, &map};
  auto all = [&]() -> int {
    mine = *args;
    for (int i = 0; i < count; i++, mine.out += step) TRY(cudaLaunchKernelExC(&config, entry->kernel, parameters))
    return 0;
  };
  std::vector<double> times;
  float ms;
  if (how == 2) {
    TRY(cudaDeviceSynchronize())
    for (int i = 0; i < count + 3; i++) {
      auto t0 = std::chrono::steady_clock::now();
      TRY(cudaLaunchKernelExC(&config, entry->kernel, parameters))
      TRY(cudaStreamSynchronize(stream))
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count());
    }
    times.erase(times.begin(), times.begin() + 3);
  } else {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    if (how == 1) {
      TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))
      if (int e = all()) return e;
      TRY(cudaStreamEndCapture(stream, &graph))
      TRY(cudaGraphInstantiate(&executable, graph, 0))
    }
    for (int r = 0; r < repeats + 2; r++) {
      TRY(cudaEventRecord(start, stream))
      if (how == 1) {
        TRY(cudaGraphLaunch(executable, stream))
      } else if (int e = all())
        return e;
      TRY(cudaEventRecord(stop, stream))
      TRY(cudaStreamSynchronize(stream))
      TRY(cudaEventElapsedTime(&ms, start, stop))
      if (r >= 2) times.push_back(ms * 1e3 / count);
    }
    if (how == 1) {
      TRY(cudaGraphExecDestroy(executable))
      TRY(cudaGraphDestroy(graph))
    }
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  *us = times[times.size() / 2];
  TRY(cudaEventDestroy(start))
  TRY(cudaEventDestroy(stop))
  return (int)cudaStreamDestroy(stream);
}
}
