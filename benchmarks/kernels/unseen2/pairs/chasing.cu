// Loads whose address is the value of the load before, with every warp slot taken.
#include "../../pair.cuh"

namespace {

constexpr int kBlocks = 132 * 16, kThreads = 128, kWarps = kBlocks * kThreads / 32;
constexpr unsigned kPages = 1u << 22, kPage = 8;  // floats to a page
constexpr int kChain = 256, kEntries = 4;

// The pages of a sequence form a list: page i is followed by i * 1664525 + 1013904223.
__global__ void make_pages(unsigned* next, float* pages) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kPages * kPage; i += gridDim.x * blockDim.x) {
    if (i < kPages) next[i] = (i * 1664525u + 1013904223u) % kPages;
    pages[i] = float(i % 7);
  }
}

// Where each quarter of a warp's list begins.
__global__ void make_entries(unsigned* entries) {
  const int warp = blockIdx.x * blockDim.x + threadIdx.x;
  if (warp >= kWarps) return;
  unsigned at = unsigned(warp) * 2654435761u % kPages;
  for (int k = 0; k < kChain; ++k) {
    if (k % (kChain / kEntries) == 0) entries[warp * kEntries + k / (kChain / kEntries)] = at;
    at = (at * 1664525u + 1013904223u) % kPages;
  }
}

// From its first page to its last.
__global__ void page_list_fault(const unsigned* next, const unsigned* entries, const float* pages, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  unsigned at = entries[warp * kEntries];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < kChain; ++k) {
    sum += pages[at * kPage + lane % kPage];
    at = next[at];
  }
  out[warp * 32 + lane] = sum;
}

// From four places at once.
__global__ void page_list_fix(const unsigned* next, const unsigned* entries, const float* pages, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  unsigned at[kEntries];
#pragma unroll
  for (int e = 0; e < kEntries; ++e) at[e] = entries[warp * kEntries + e];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < kChain / kEntries; ++k)
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      sum += pages[at[e] * kPage + lane % kPage];
      at[e] = next[at[e]];
    }
  out[warp * 32 + lane] = sum;
}

class PageList : public Pair {
 public:
  PageList() : next_(kPages), entries_(kWarps * kEntries), pages_(size_t(kPages) * kPage), out_(size_t(kWarps) * 32) {
    make_pages<<<1024, 256>>>(next_.get(), pages_.get());
    make_entries<<<(kWarps + 255) / 256, 256>>>(entries_.get());
  }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? page_list_fix : page_list_fault)<<<kBlocks, kThreads>>>(next_.get(), entries_.get(), pages_.get(),
                                                                      out_.get());
  }
  std::vector<double> result() const override { return out_.sample(7); }

 private:
  DeviceArray<unsigned> next_, entries_;
  DeviceArray<float> pages_, out_;
};
Register<PageList> list("page_list", "unseen");

// A search tree of 2^23 - 1 nodes, wherever they lie; and its keys in order.
constexpr int kLevels = 23, kQueries = 16;
constexpr unsigned kNodes = 1u << kLevels;

__host__ __device__ inline unsigned place_of(unsigned heap) { return heap * 2654435761u % kNodes; }

__global__ void make_tree(uint4* nodes, unsigned* keys) {
  for (unsigned h = blockIdx.x * blockDim.x + threadIdx.x; h < kNodes; h += gridDim.x * blockDim.x) {
    keys[h] = 3 * h;
    if (h == 0) continue;
    const int depth = 31 - __clz(h);
    const unsigned rank = (2 * (h - (1u << depth)) + 1) * (1u << (kLevels - 1 - depth)) - 1;
    const bool is_leaf = depth == kLevels - 1;
    nodes[place_of(h)] = make_uint4(3 * rank, is_leaf ? ~0u : place_of(2 * h), is_leaf ? ~0u : place_of(2 * h + 1), rank);
  }
}

__device__ unsigned wanted_of(unsigned query) { return 3 * (query * 2654435761u % (kNodes - 1)) + 1; }

// From node to node, one after the other: the rank of the greatest key that is no greater.
__global__ void search_tree_fault(const uint4* nodes, const unsigned* keys, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32;
#pragma unroll 1
  for (int q = 0; q < kQueries; ++q) {
    const unsigned wanted = wanted_of(warp * kQueries + q);
    unsigned at = place_of(1), found = 0;
    while (at != ~0u) {
      const uint4 node = nodes[at];
      if (node.x <= wanted) found = node.w;
      at = node.x <= wanted ? node.z : node.y;
    }
    if (threadIdx.x % 32 == 0) out[warp * kQueries + q] = float(found);
  }
}

// 32 ways at each level: the lanes compare 32 keys at a time.
__global__ void search_tree_fix(const uint4* nodes, const unsigned* keys, float* out) {
  const int warp = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int q = 0; q < kQueries; ++q) {
    const unsigned wanted = wanted_of(warp * kQueries + q);
    unsigned low = 0;
#pragma unroll
    for (int size = 1 << 20; size; size = size > 32 ? size / 32 : size > 1 ? 1 : 0) {
      const unsigned at = low + lane * size;
      low += size * (__popc(__ballot_sync(~0u, at < kNodes - 1 && keys[at] <= wanted)) - 1);
    }
    if (lane == 0) out[warp * kQueries + q] = float(low);
  }
}

class SearchTree : public Pair {
 public:
  SearchTree() : keys_(kNodes), out_(size_t(kWarps) * kQueries) {
    check(cudaMalloc(&nodes_, kNodes * sizeof(uint4)), "cudaMalloc");
    make_tree<<<1024, 256>>>(nodes_, keys_.get());
  }
  ~SearchTree() override { cudaFree(nodes_); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? search_tree_fix : search_tree_fault)<<<kBlocks, kThreads>>>(nodes_, keys_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(7); }

 private:
  uint4* nodes_ = nullptr;
  DeviceArray<unsigned> keys_;
  DeviceArray<float> out_;
};
Register<SearchTree> tree("search_tree", "unseen");

}  // namespace
