// A few blocks run on when the rest of the GPU has nothing left.
#include "../../pair.cuh"

namespace {

constexpr int kThreads = 1024, kShared = 120 * 1024;  // one block per SM, as with a tile of that size

__device__ float worked(float x, int units) {
  float a = x, b = x + 1, c = x + 2, d = x + 3;
  for (int r = 0; r < units * 512; ++r) {
    a = fmaf(a, 0.5f, 1.0f);
    b = fmaf(b, 0.5f, 2.0f);
    c = fmaf(c, 0.5f, 3.0f);
    d = fmaf(d, 0.5f, 4.0f);
  }
  return a + b + c + d;
}

// Items in the order of their cost, the dearest last: 16 blocks outlast 116.
__global__ void dearest_last_fault(float* out, int cheap, int dear) {
  const bool is_dear = int(blockIdx.x) >= cheap;
  out[blockIdx.x * kThreads + threadIdx.x] = worked(threadIdx.x, is_dear ? 8 : 1);
}

// The dearest first.
__global__ void dearest_last_fix(float* out, int cheap, int dear) {
  const int block = int(blockIdx.x) < dear ? cheap + int(blockIdx.x) : int(blockIdx.x) - dear;
  out[block * kThreads + threadIdx.x] = worked(threadIdx.x, block >= cheap ? 8 : 1);
}

class Tail : public Pair {
 public:
  explicit Tail(size_t blocks) : out_(blocks * kThreads) {}
  void reset() override { out_.clear(); }
  std::vector<double> result() const override { return out_.sample(61); }

 protected:
  DeviceArray<float> out_;
};

struct DearestLast : Tail {
  DearestLast() : Tail(132 * 4 + 16) {
    for (auto kernel : {dearest_last_fault, dearest_last_fix})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared");
  }
  void launch(bool fixed) override {
    (fixed ? dearest_last_fix : dearest_last_fault)<<<132 * 4 + 16, kThreads, kShared>>>(out_.get(), 132 * 4, 16);
  }
};
Register<DearestLast> dearest("dearest_last", "unseen");

// Items sorted by length, as batches of sequences are; the longest takes nine times the shortest's rounds.
__device__ int length_of(int item, int items) { return 64 + 512 * (item / 8) / (items / 8) * (item / 8) / (items / 8); }

__device__ void one_item(float* out, int item, int items) {
  float x = item + threadIdx.x, y = x + 1;
  for (int r = 0; r < length_of(item, items); ++r) {
    x = fmaf(x, 0.5f, 1.0f);
    y = fmaf(y, 0.5f, 2.0f);
  }
  out[item * kThreads + threadIdx.x] = x + y;
}

// Eight neighbours to a block: the last blocks hold nothing but long items.
__global__ void sorted_items_fault(float* out, int items) {
  for (int k = 0; k < 8; ++k) one_item(out, blockIdx.x * 8 + k, items);
}

// Dealt like cards.
__global__ void sorted_items_fix(float* out, int items) {
  for (int k = 0; k < 8; ++k) one_item(out, k * gridDim.x + blockIdx.x, items);
}

struct SortedItems : Tail {
  static constexpr int kItems = 132 * 8;
  SortedItems() : Tail(kItems) {
    for (auto kernel : {sorted_items_fault, sorted_items_fix})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared");
  }
  void launch(bool fixed) override {
    (fixed ? sorted_items_fix : sorted_items_fault)<<<kItems / 8, kThreads, kShared>>>(out_.get(), kItems);
  }
};
Register<SortedItems> sorted("sorted_items", "unseen");

}  // namespace
