// Operands that the copy engine (TMA) brings into shared memory, waited for as soon as they are asked for.
#include <cuda_fp16.h>

#include "../../pair.cuh"

namespace {

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ void prepare(unsigned long long* barriers, int count) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < count; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + s)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
}

__device__ void expect(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ void copy(unsigned long long* barrier, void* to, const void* from, unsigned bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ void await(unsigned long long* barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\nbra again;\nready:\n}" ::"r"(shared_address(barrier)), "r"(phase)
      : "memory");
}

// Tiles lie in memory as wgmma reads them: 128 or 256 rows of 64 halves, in pieces of 8 rows of 8.
constexpr int kN = 4096, kTileM = 128, kTileN = 256, kDepth = 64, kTiles = kN / kDepth;
constexpr int kBytesA = kTileM * kDepth * 2, kBytesB = kTileN * kDepth * 2, kStage = kBytesA + kBytesB;

__device__ unsigned long long operand(unsigned address) {  // pieces follow each other along K, then along rows
  return (address & 0x3ffff) >> 4 | 128ull >> 4 << 16 | 128ull * (kDepth / 8) >> 4 << 32;
}

// d (64 x 128) += a (64 x 16) b (128 x 16)^T
__device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
      :
      "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), 
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), 
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), 
      "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), 
      "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), 
      "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), 
      "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), 
      "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b));
}

__device__ void fetch(unsigned long long* barrier, char* stage, const char* a, const char* b) {
  expect(barrier, kStage);
  copy(barrier, stage, a, kBytesA);
  copy(barrier, stage + kBytesA, b, kBytesB);
}

// C = A B^T, 128 x 256 to a block of two warp groups, 64 x 256 to each, kStages tiles of K on the way.
template <int kStages>
__device__ void product(const __half* a, const __half* b, float* c) {
  extern __shared__ __align__(1024) char stages[];
  __shared__ unsigned long long barriers[kStages];
  const char* from_a = reinterpret_cast<const char*>(a) + size_t(blockIdx.y) * kTiles * kBytesA;
  const char* from_b = reinterpret_cast<const char*>(b) + size_t(blockIdx.x) * kTiles * kBytesB;
  prepare(barriers, kStages);
  if (threadIdx.x == 0)
    for (int s = 0; s < kStages; ++s)
      fetch(barriers + s, stages + s * kStage, from_a + size_t(s) * kBytesA, from_b + size_t(s) * kBytesB);
  const int group = threadIdx.x / 128;
  float sums[2][64] = {};
#pragma unroll 1
  for (int t = 0; t < kTiles; ++t) {
    char* stage = stages + t % kStages * kStage;
    await(barriers + t % kStages, t / kStages % 2);
    const unsigned at_a = shared_address(stage) + group * (kBytesA / 2), at_b = shared_address(stage + kBytesA);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      multiply(sums[0], operand(at_a + k * 256), operand(at_b + k * 256));
      multiply(sums[1], operand(at_a + k * 256), operand(at_b + kBytesB / 2 + k * 256));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0 && t + kStages < kTiles)
      fetch(barriers + t % kStages, stage, from_a + size_t(t + kStages) * kBytesA, from_b + size_t(t + kStages) * kBytesB);
  }
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  float* to = c + size_t(blockIdx.y * kTileM + group * 64 + warp * 16 + lane / 4) * kN + blockIdx.x * kTileN + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int e = 0; e < 64; e += 2)
      *reinterpret_cast<float2*>(to + size_t(e / 2 % 2 * 8) * kN + half * 128 + e / 4 * 8) =
          make_float2(sums[half][e], sums[half][e + 1]);
}

__global__ void __launch_bounds__(256, 1) one_stage_wgmma_fault(const __half* a, const __half* b, float* c) {
  product<1>(a, b, c);
}
__global__ void __launch_bounds__(256, 1) one_stage_wgmma_fix(const __half* a, const __half* b, float* c) {
  product<4>(a, b, c);
}

class OneStageWgmma : public Pair {
 public:
  OneStageWgmma() : a_(size_t(kN) * kN), b_(size_t(kN) * kN), c_(size_t(kN) * kN) {
    fill(a_, 3);
    fill(b_, 5);
    for (auto kernel : {one_stage_wgmma_fault, one_stage_wgmma_fix})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4 * kStage), "shared");
  }
  void reset() override { c_.clear(); }
  void launch(bool fixed) override {
    auto kernel = fixed ? one_stage_wgmma_fix : one_stage_wgmma_fault;
    kernel<<<dim3(kN / kTileN, kN / kTileM), 256, (fixed ? 4 : 1) * kStage>>>(a_.get(), b_.get(), c_.get());
  }
  std::vector<double> result() const override { return c_.sample(9973); }

 private:
  DeviceArray<__half> a_, b_;
  DeviceArray<float> c_;
};
Register<OneStageWgmma> wgmma("one_stage_wgmma", "unseen");

// Pages of 2 KB that a table names, as a cache of keys holds them.
constexpr int kThreads = 512, kPage = 512, kBlocks = 132 * 4, kPages = 256;
constexpr unsigned kAllPages = 1u << 17;  // 256 MB

__device__ unsigned page_of(int block, int k) { return (unsigned(block) * kPages + k) * 2654435761u % kAllPages; }

template <int kStages>
__device__ void gathered(const float* pages, float* out) {
  __shared__ __align__(128) float held[kStages][kPage];
  __shared__ unsigned long long barriers[kStages];
  prepare(barriers, kStages);
  const auto ask = [&](int k) {
    expect(barriers + k % kStages, kPage * 4);
    copy(barriers + k % kStages, held[k % kStages], pages + size_t(page_of(blockIdx.x, k)) * kPage, kPage * 4);
  };
  if (threadIdx.x == 0)
    for (int k = 0; k < kStages; ++k) ask(k);
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < kPages; ++k) {
    await(barriers + k % kStages, k / kStages % 2);
    sum += held[k % kStages][threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0 && k + kStages < kPages) ask(k + kStages);
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void page_by_page_fault(const float* pages, float* out) { gathered<1>(pages, out); }
__global__ void page_by_page_fix(const float* pages, float* out) { gathered<6>(pages, out); }

class PageByPage : public Pair {
 public:
  PageByPage() : pages_(size_t(kAllPages) * kPage), out_(size_t(kBlocks) * kThreads) { fill(pages_, 5); }
  void reset() override { out_.clear(); }
  void launch(bool fixed) override {
    (fixed ? page_by_page_fix : page_by_page_fault)<<<kBlocks, kThreads>>>(pages_.get(), out_.get());
  }
  std::vector<double> result() const override { return out_.sample(61); }

 private:
  DeviceArray<float> pages_, out_;
};
Register<PageByPage> paged("page_by_page", "unseen");

}  // namespace
