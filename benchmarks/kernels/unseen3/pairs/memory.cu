// Results written, caches read again, copies waited for, keys streamed.
#include <cuda_fp16.h>
#include <mma.h>

#include "../../pair.cuh"

namespace {

using namespace nvcuda;

constexpr int kSide = 8192, kShort = 32;

// C = A B^T, 32 x 32 to a warp; the result is written in fp32 beside what comes before the activation, or in fp16 alone.
template <bool kIsFixed>
__device__ void product(const __half* a, const __half* b, float* c, float* before, __half* narrow) {
  const int row = blockIdx.y * 64 + threadIdx.x / 64 * 32, column = blockIdx.x * 64 + threadIdx.x / 32 % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
#pragma unroll
  for (int k = 0; k < kShort; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa[2];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      wmma::load_matrix_sync(fa[i], a + size_t(row + i * 16) * kShort + k, kShort);
      wmma::load_matrix_sync(fb[i], b + size_t(column + i * 16) * kShort + k, kShort);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    auto& one = sum[i / 2][i % 2];
    const size_t to = size_t(row + i / 2 * 16) * kSide + column + i % 2 * 16;
    if constexpr (kIsFixed) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, __half> half;
#pragma unroll
      for (int e = 0; e < one.num_elements; ++e) half.x[e] = __float2half(fmaxf(one.x[e], 64.0f));
      wmma::store_matrix_sync(narrow + to, half, kSide, wmma::mem_row_major);
    } else {
      wmma::store_matrix_sync(before + to, one, kSide, wmma::mem_row_major);
#pragma unroll
      for (int e = 0; e < one.num_elements; ++e) one.x[e] = fmaxf(one.x[e], 64.0f);
      wmma::store_matrix_sync(c + to, one, kSide, wmma::mem_row_major);
    }
  }
}

__global__ void written_twice_fault(const __half* a, const __half* b, float* c, float* before, __half* narrow) {
  product<false>(a, b, c, before, narrow);
}
__global__ void written_twice_fix(const __half* a, const __half* b, float* c, float* before, __half* narrow) {
  product<true>(a, b, c, before, narrow);
}

class WrittenTwice : public Pair {
 public:
  WrittenTwice()
      : a_(size_t(kSide) * kShort), b_(size_t(kSide) * kShort), narrow_(size_t(kSide) * kSide), c_(narrow_.count()),
        before_(narrow_.count()) {
    fill(a_, 3);
    fill(b_, 5);
  }
  void reset() override { c_.clear(), narrow_.clear(); }
  void launch(bool fixed) override {
    is_fixed_ = fixed;
    auto kernel = fixed ? written_twice_fix : written_twice_fault;
    kernel<<<dim3(kSide / 64, kSide / 64), 128>>>(a_.get(), b_.get(), c_.get(), before_.get(), narrow_.get());
  }
  std::vector<double> result() const override {
    if (!is_fixed_) return c_.sample(9973);
    std::vector<__half> host(narrow_.count());
    check(cudaMemcpy(host.data(), narrow_.get(), host.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<double> found;
    for (size_t i = 0; i < host.size(); i += 9973) found.push_back(__half2float(host[i]));
    return found;
  }

 private:
  DeviceArray<__half> a_, b_, narrow_;
  DeviceArray<float> c_, before_;
  bool is_fixed_ = false;
};
Register<WrittenTwice> written("written_twice", "unseen");

constexpr int kRows = 132 * 16, kWidth = 2048;  // weights of 16 MB

// Y = X W: a block takes kMine rows of X and reads all of W from L2; four columns to a thread.
template <int kMine>
__device__ void layer(const float* x, const float4* w, float4* y) {
  extern __shared__ float mine[];  // [k][row]
  for (int i = threadIdx.x; i < kMine * kWidth; i += 512)
    mine[i % kWidth * kMine + i / kWidth] = x[size_t(blockIdx.x * kMine + i / kWidth) * kWidth + i % kWidth];
  __syncthreads();
  float4 sums[kMine] = {};
#pragma unroll 4
  for (int k = 0; k < kWidth; ++k) {
    const float4 v = __ldcg(w + size_t(k) * (kWidth / 4) + threadIdx.x);
#pragma unroll
    for (int r = 0; r < kMine; ++r) {
      const float by = mine[k * kMine + r];
      sums[r].x = fmaf(by, v.x, sums[r].x), sums[r].y = fmaf(by, v.y, sums[r].y);
      sums[r].z = fmaf(by, v.z, sums[r].z), sums[r].w = fmaf(by, v.w, sums[r].w);
    }
  }
#pragma unroll
  for (int r = 0; r < kMine; ++r) y[size_t(blockIdx.x * kMine + r) * (kWidth / 4) + threadIdx.x] = sums[r];
}

__global__ void __launch_bounds__(512) few_rows_fault(const float* x, const float4* w, float4* y) { layer<4>(x, w, y); }
__global__ void __launch_bounds__(512) few_rows_fix(const float* x, const float4* w, float4* y) { layer<16>(x, w, y); }

class FewRows : public Pair {
 public:
  FewRows() : x_(size_t(kRows) * kWidth), w_(size_t(kWidth) * kWidth), y_(size_t(kRows) * kWidth) {
    fill(x_, 3);
    fill(w_, 5);
    for (auto kernel : {few_rows_fault, few_rows_fix})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 16 * kWidth * 4), "shared");
  }
  void reset() override { y_.clear(); }
  void launch(bool fixed) override {
    const int mine = fixed ? 16 : 4;
    (fixed ? few_rows_fix : few_rows_fault)<<<kRows / mine, 512, mine * kWidth * 4>>>(
        x_.get(), reinterpret_cast<const float4*>(w_.get()), reinterpret_cast<float4*>(y_.get()));
  }
  std::vector<double> result() const override { return y_.sample(9973); }

 private:
  DeviceArray<float> x_, w_, y_;
};
Register<FewRows> rows("few_rows", "unseen");

constexpr int kBlocks = 132 * 2, kThreads = 1024, kRowsEach = 256;  // rows of 4 KB

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// Each row is copied (TMA) into shared memory, summed up by the block's warps, and its largest value kept.
template <int kStages>
__device__ void largest(const float* in, float* out) {
  __shared__ __align__(128) float held[kStages][kThreads];
  __shared__ unsigned long long barriers[kStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const auto ask = [&](int row) {
    const unsigned barrier = shared_address(barriers + row % kStages);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kThreads * 4) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(held[row % kStages])),
        "l"(in + (size_t(row) * kBlocks + blockIdx.x) * kThreads), "r"(kThreads * 4), "r"(barrier)
        : "memory");
  };
  if (threadIdx.x == 0)
    for (int row = 0; row < kStages; ++row) ask(row);
  float most = 0;
#pragma unroll 1
  for (int row = 0; row < kRowsEach; ++row) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(barriers + row % kStages)),
        "r"(row / kStages % 2)
        : "memory");
    most = fmaxf(most * 0.5f, held[row % kStages][threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0 && row + kStages < kRowsEach) ask(row + kStages);
  }
  out[blockIdx.x * kThreads + threadIdx.x] = most;
}

__global__ void __launch_bounds__(1024) row_by_row_fault(const float* in, float* out) { largest<1>(in, out); }
__global__ void __launch_bounds__(1024) row_by_row_fix(const float* in, float* out) { largest<6>(in, out); }

class RowByRow : public Pair {
 public:
  RowByRow() : in_(size_t(kBlocks) * kRowsEach * kThreads), out_(size_t(kBlocks) * kThreads) { fill(in_, 1021); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? row_by_row_fix : row_by_row_fault)<<<kBlocks, kThreads>>>(in_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> in_, out_;
};
Register<RowByRow> by_row("row_by_row", "unseen");

constexpr int kHeads = 32, kKeys = 65536, kDepth = 128;  // keys of 512 MB in fp16

__device__ void write_score(float sum, float* scores, size_t key) {
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) scores[key] = sum;
}

// Scores of one query against all cached keys, a key to a warp: fp16.
__global__ void cached_keys_fault(const uint2* keys, const float4* query, float* scores) {
  const size_t warp = (size_t(blockIdx.x) * 256 + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  const float4 q = query[warp * 8 / kKeys * 32 + lane];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint2 raw = __ldcs(keys + (warp * 8 + k) * 32 + lane);
    const float2 a = __half22float2(*reinterpret_cast<__half2*>(&raw.x));
    const float2 b = __half22float2(*reinterpret_cast<__half2*>(&raw.y));
    write_score(a.x * q.x + a.y * q.y + b.x * q.z + b.y * q.w, scores, warp * 8 + k);
  }
}

__device__ float number(unsigned bits) { return __uint_as_float(0x4b000000u | bits) - 8388608.0f; }

// Eight bits.
__global__ void cached_keys_fix(const unsigned* keys, const float4* query, float* scores) {
  const size_t warp = (size_t(blockIdx.x) * 256 + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  const float4 q = query[warp * 8 / kKeys * 32 + lane];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const unsigned raw = __ldcs(keys + (warp * 8 + k) * 32 + lane);
    write_score(number(raw & 255) * q.x + number(raw >> 8 & 255) * q.y + number(raw >> 16 & 255) * q.z +
                    number(raw >> 24) * q.w,
                scores, warp * 8 + k);
  }
}

class CachedKeys : public Pair {
 public:
  CachedKeys()
      : wide_(size_t(kHeads) * kKeys * kDepth), narrow_(wide_.count()), query_(kHeads * kDepth),
        scores_(size_t(kHeads) * kKeys) {
    fill(wide_, 7);
    fill(narrow_, 7);
    fill(query_, 5);
  }
  void reset() override { scores_.clear(); }
  void launch(bool fixed) override {
    const int blocks = kHeads * kKeys / 8 / 8;
    auto q = reinterpret_cast<const float4*>(query_.get());
    if (fixed) cached_keys_fix<<<blocks, 256>>>(reinterpret_cast<const unsigned*>(narrow_.get()), q, scores_.get());
    else cached_keys_fault<<<blocks, 256>>>(reinterpret_cast<const uint2*>(wide_.get()), q, scores_.get());
  }
  std::vector<double> result() const override { return scores_.sample(61); }

 private:
  DeviceArray<__half> wide_;
  DeviceArray<unsigned char> narrow_;
  DeviceArray<float> query_, scores_;
};
Register<CachedKeys> cached("cached_keys", "unseen");

}  // namespace
