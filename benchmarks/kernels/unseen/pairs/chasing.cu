// Loads whose address is the value of the load before, with every warp slot taken.
#include "../../pair.cuh"

namespace {

constexpr int kBlocks = 132 * 8, kThreads = 256, kWarps = kBlocks * kThreads / 32;
constexpr unsigned kNodes = 1u << 25;  // of 8 bytes: 256 MB
constexpr int kLists = 4, kSteps = 48;

// A linear congruence of full period: one cycle through all nodes.
__global__ void make_list(uint2* nodes) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kNodes; i += gridDim.x * blockDim.x)
    nodes[i] = make_uint2((i * 1664525u + 1013904223u) % kNodes, i % 5);
}

__device__ unsigned start_of(int list) { return (unsigned(list) * 2654435761u) % kNodes; }

// A warp walks its four lists one after the other.
__global__ void list_walk_fault(const uint2* nodes, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned sum = 0;
#pragma unroll 1
  for (int list = 0; list < kLists; ++list) {
    unsigned at = start_of(warp * kLists + list);
#pragma unroll 1
    for (int k = 0; k < kSteps; ++k) {
      const uint2 node = nodes[at];
      at = node.x;
      sum += node.y;
    }
  }
  if (threadIdx.x % 32 == 0) out[warp] = float(sum);
}

// In step: four loads on the way at a time.
__global__ void list_walk_fix(const uint2* nodes, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned sum = 0, at[kLists];
  for (int list = 0; list < kLists; ++list) at[list] = start_of(warp * kLists + list);
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int list = 0; list < kLists; ++list) {
      const uint2 node = nodes[at[list]];
      at[list] = node.x;
      sum += node.y;
    }
  }
  if (threadIdx.x % 32 == 0) out[warp] = float(sum);
}

class ListWalk : public Pair {
 public:
  ListWalk() : nodes_(kNodes), out_(kWarps) { make_list<<<1024, 256>>>(nodes_.get()); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? list_walk_fix : list_walk_fault)<<<kBlocks, kThreads>>>(nodes_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(); }

 private:
  struct Array {  // as DeviceArray, of pairs
    explicit Array(size_t count) { check(cudaMalloc(&data, count * sizeof(uint2)), "cudaMalloc"); }
    ~Array() { cudaFree(data); }
    uint2* get() const { return data; }
    uint2* data = nullptr;
  } nodes_;
  DeviceArray<float> out_;
};
Register<ListWalk> walk("list_walk", "unseen");

constexpr unsigned kKeys = 1u << 25;
constexpr int kSearches = 8;

__global__ void make_keys(unsigned* keys) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kKeys; i += gridDim.x * blockDim.x) keys[i] = 3 * i;
}

__device__ unsigned wanted_of(int search) { return 3 * ((unsigned(search) * 2654435761u) % kKeys) + 1; }

// 25 halvings: each load tells where the next one goes.
__global__ void halving_search_fault(const unsigned* keys, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
#pragma unroll 1
  for (int s = 0; s < kSearches; ++s) {
    const unsigned wanted = wanted_of(warp * kSearches + s);
    unsigned low = 0;
#pragma unroll 1
    for (unsigned size = kKeys / 2; size; size /= 2)
      if (keys[low + size] <= wanted) low += size;
    if (threadIdx.x % 32 == 0) out[warp * kSearches + s] = float(low);
  }
}

// Eight searches in step: eight loads on the way at a time.
__global__ void halving_search_fix(const unsigned* keys, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
  unsigned low[kSearches] = {};
#pragma unroll 1
  for (unsigned size = kKeys / 2; size; size /= 2) {
    unsigned key[kSearches];
#pragma unroll
    for (int s = 0; s < kSearches; ++s) key[s] = keys[low[s] + size];
#pragma unroll
    for (int s = 0; s < kSearches; ++s)
      if (key[s] <= wanted_of(warp * kSearches + s)) low[s] += size;
  }
#pragma unroll
  for (int s = 0; s < kSearches; ++s)
    if (threadIdx.x % 32 == 0) out[warp * kSearches + s] = float(low[s]);
}

class HalvingSearch : public Pair {
 public:
  HalvingSearch() : keys_(kKeys), out_(size_t(kWarps) * kSearches) { make_keys<<<1024, 256>>>(keys_.get()); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? halving_search_fix : halving_search_fault)<<<kBlocks, kThreads>>>(keys_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(7); }

 private:
  DeviceArray<unsigned> keys_;
  DeviceArray<float> out_;
};
Register<HalvingSearch> search("halving_search", "unseen");

}  // namespace
