// SMs that run out of blocks while others still work.
#include <algorithm>

#include "../../pair.cuh"

namespace {

constexpr int kThreads = 256, kRows = 132 * 16, kShort = 4096, kLong = 1 << 20, kEvery = 528, kPiece = 4096;

__device__ void add_to(float* to, float sum) {
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(to, sum);
}

// Sums of the rows of a sparse matrix: four rows hold a third of it. One block to a row.
__global__ void uneven_rows_fault(const float* values, const int* begins, const int* rows, float* sums) {
  float sum = 0;
  for (int i = begins[blockIdx.x] + threadIdx.x; i < begins[blockIdx.x + 1]; i += kThreads) sum += values[i];
  add_to(sums + blockIdx.x, sum);
}

// One block to each piece of 4096 values, whichever row they are of.
__global__ void uneven_rows_fix(const float* values, const int* begins, const int* rows, float* sums) {
  float sum = 0;
  for (int i = threadIdx.x; i < kPiece; i += kThreads) sum += values[blockIdx.x * kPiece + i];
  add_to(sums + rows[blockIdx.x], sum);
}

class UnevenRows : public Pair {
 public:
  UnevenRows() : begins_(kRows + 1), rows_(kPieces), values_(size_t(kPieces) * kPiece), sums_(kRows) {
    std::vector<int> begins(1, 0), rows;
    for (int row = 0; row < kRows; ++row) {
      const int length = row % kEvery == kEvery - 1 ? kLong : kShort;
      begins.push_back(begins.back() + length);
      rows.insert(rows.end(), length / kPiece, row);
    }
    check(cudaMemcpy(begins_.get(), begins.data(), begins.size() * 4, cudaMemcpyHostToDevice), "begins");
    check(cudaMemcpy(rows_.get(), rows.data(), rows.size() * 4, cudaMemcpyHostToDevice), "rows");
    fill(values_, 2);
  }
  void reset() override { sums_.clear(); }
  void launch(bool fixed) override {
    (fixed ? uneven_rows_fix : uneven_rows_fault)<<<fixed ? kPieces : kRows, kThreads>>>(
        values_.get(), begins_.get(), rows_.get(), sums_.get());
  }
  std::vector<double> result() const override { return sums_.sample(); }

 private:
  static constexpr int kLongs = kRows / kEvery;
  static constexpr int kPieces = (kRows - kLongs) * (kShort / kPiece) + kLongs * (kLong / kPiece);
  DeviceArray<int> begins_, rows_;
  DeviceArray<float> values_, sums_;
};
Register<UnevenRows> uneven("uneven_rows", "unseen");

constexpr int kRowsOfTiles = 132;

__device__ float tile_of(float x, int of) {
  float a = x + of, b = a + 1;
  for (int k = 0; k < 256; ++k) {
    a = fmaf(a, 0.5f, 1.0f);
    b = fmaf(b, 0.5f, 2.0f);
  }
  return floorf(a + b);
}

__device__ int tiles_of(int row) { return (row + 1) * (row + 1) / 66 + 1; }

// A row of a pyramid of tiles to each SM: the last works three times as long as the mean.
__global__ void __launch_bounds__(1024) growing_rows_fault(float* out) {
  float sum = 0;
  for (int tile = 0; tile < tiles_of(blockIdx.x); ++tile) sum += tile_of(threadIdx.x, tile);
  out[blockIdx.x * 1024 + threadIdx.x] = sum;
}

// The tiles of each row dealt to all SMs, another SM first in each row.
__global__ void __launch_bounds__(1024) growing_rows_fix(float* out) {
  for (int row = 0, dealt = 0; row < kRowsOfTiles; dealt += tiles_of(row++)) {
    float sum = 0;
    const int first = (int(blockIdx.x) + kRowsOfTiles - dealt % kRowsOfTiles) % kRowsOfTiles;
    for (int tile = first; tile < tiles_of(row); tile += kRowsOfTiles) sum += tile_of(threadIdx.x, tile);
    if (first < tiles_of(row)) atomicAdd(out + row * 1024 + threadIdx.x, sum);
  }
}

class GrowingRows : public Pair {
 public:
  GrowingRows() : out_(kRowsOfTiles * 1024) {}
  void reset() override { out_.clear(); }
  void launch(bool fixed) override { (fixed ? growing_rows_fix : growing_rows_fault)<<<kRowsOfTiles, 1024>>>(out_.get()); }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> out_;
};
Register<GrowingRows> growing("growing_rows", "unseen");

}  // namespace
