// Tiles, lists and histograms in shared memory, arrays in registers, places in global memory.
#include "../../unseen7/pairs/shared.cuh"

namespace {

constexpr int kHead = 64, kSpan = 128, kQueries = 64, kWindows = kSMs * 12;

// Scores of attention within a window: a thread to each key, whose tile lies in shared memory as it came.
template <int kPitch>
__device__ void scores(const float* in, float* out) {
  extern __shared__ float keys[];
  __shared__ float query[kHead];
  const float* mine = in + size_t(blockIdx.x) * kSpan * kHead;
  for (int i = threadIdx.x; i < kSpan * kHead; i += kSpan) keys[i / kHead * kPitch + i % kHead] = mine[i];
  for (int q = 0; q < kQueries; ++q) {
    __syncthreads();
    if (threadIdx.x < kHead) query[threadIdx.x] = mine[q * kHead + threadIdx.x];
    __syncthreads();
    float score = 0;
#pragma unroll 16
    for (int d = 0; d < kHead; ++d) score += query[d] * keys[threadIdx.x * kPitch + d];
    out[(size_t(blockIdx.x) * kQueries + q) * kSpan + threadIdx.x] = score;
  }
}
__global__ void window_scores_fault(const float* in, float* out) { scores<kHead>(in, out); }
__global__ void window_scores_fix(const float* in, float* out) { scores<kHead + 1>(in, out); }
Unseen windows("window_scores", {size_t(kWindows) * kSpan * kHead, size_t(kWindows) * kQueries * kSpan, 61, [](bool fixed, const float* in, float* out) {
                                   if (fixed) window_scores_fix<<<kWindows, kSpan, kSpan*(kHead + 1) * 4>>>(in, out);
                                   else window_scores_fault<<<kWindows, kSpan, kSpan * kHead * 4>>>(in, out);
                                 }, 13});

constexpr int kColumns = kSMs * 1024, kSteps = 124, kBest = 32;

// The 32 largest of a column in order, in shared memory; later ones are larger here, so that each is put in.
template <int kOfThread, int kOfPlace>
__device__ void largest(const float* in, float* out) {
  extern __shared__ float lists[];
  float* best = lists + threadIdx.x * kOfThread;
  const int column = blockIdx.x * 128 + threadIdx.x;
  for (int i = 0; i < kBest; ++i) best[i * kOfPlace] = -1;
  for (int step = 0; step < kSteps; ++step) {
    const float v = in[size_t(step) * kColumns + column];
    int place = kBest - 1;
    if (v <= best[place * kOfPlace]) continue;
    for (; place > 0 && best[(place - 1) * kOfPlace] < v; --place) best[place * kOfPlace] = best[(place - 1) * kOfPlace];
    best[place * kOfPlace] = v;
  }
  for (int i = 0; i < kBest; ++i) out[size_t(i) * kColumns + column] = best[i * kOfPlace];
}
__global__ void best_in_shared_fault(const float* in, float* out) { largest<kBest, 1>(in, out); }
__global__ void best_in_shared_fix(const float* in, float* out) { largest<1, 128>(in, out); }
Unseen bests("best_in_shared", {size_t(kColumns) * kSteps, size_t(kColumns) * kBest, 16777213, [](bool fixed, const float* in, float* out) {
                                  (fixed ? best_in_shared_fix : best_in_shared_fault)<<<kColumns / 128, 128, 128 * kBest * 4>>>(in, out);
                                }, 997});

constexpr int kSignals = kSMs * 2048, kPoints = 32;
__device__ constexpr float kCos[16] = {1.000000000f, 0.980785280f, 0.923879533f, 0.831469612f, 0.707106781f, 0.555570233f, 0.382683432f, 0.195090322f, 0.000000000f, -0.195090322f, -0.382683432f, -0.555570233f, -0.707106781f, -0.831469612f, -0.923879533f, -0.980785280f};
__device__ constexpr float kSin[16] = {0.000000000f, 0.195090322f, 0.382683432f, 0.555570233f, 0.707106781f, 0.831469612f, 0.923879533f, 0.980785280f, 1.000000000f, 0.980785280f, 0.923879533f, 0.831469612f, 0.707106781f, 0.555570233f, 0.382683432f, 0.195090322f};

// A transform of 32 points and back, in registers; `inverse` turns the other way.
__device__ void transformed(float (&re)[kPoints], float (&im)[kPoints], float turn) {
#pragma unroll
  for (int half = kPoints / 2; half >= 1; half /= 2)
#pragma unroll
    for (int i = 0; i < kPoints; ++i)
      if ((i & half) == 0) {
        const float c = kCos[i % half * (16 / half)], s = kSin[i % half * (16 / half)] * turn;
        const float x = re[i] - re[i + half], y = im[i] - im[i + half];
        re[i] += re[i + half];
        im[i] += im[i + half];
        re[i + half] = x * c - y * s;
        im[i + half] = x * s + y * c;
      }
}
// A filter in the frequency domain: a signal to each thread. What a frequency is multiplied with is the same for all.
__device__ void filtered(const float* in, float* out) {
  const int signal = blockIdx.x * blockDim.x + threadIdx.x;
  float re[kPoints], im[kPoints];
#pragma unroll
  for (int i = 0; i < kPoints; ++i) re[i] = in[size_t(i) * kSignals + signal], im[i] = 0;
#pragma unroll 1
  for (int turn = 0; turn < 4; ++turn) {
    transformed(re, im, 1.0f);
#pragma unroll
    for (int i = 0; i < kPoints; ++i) re[i] *= 1.0f / (kPoints + i), im[i] *= 1.0f / (kPoints + i);
    transformed(re, im, -1.0f);
  }
#pragma unroll
  for (int i = 0; i < kPoints; ++i) out[size_t(i) * kSignals + signal] = re[i];
}
__global__ void __launch_bounds__(1024, 2) filter_in_registers_fault(const float* in, float* out) { filtered(in, out); }
__global__ void __launch_bounds__(256, 2) filter_in_registers_fix(const float* in, float* out) { filtered(in, out); }
Unseen filters("filter_in_registers", {size_t(kSignals) * kPoints, size_t(kSignals) * kPoints, 61, [](bool fixed, const float* in, float* out) {
                                         if (fixed) filter_in_registers_fix<<<kSignals / 256, 256>>>(in, out);
                                         else filter_in_registers_fault<<<kSignals / 1024, 1024>>>(in, out);
                                       }, 997, 1e-3});

constexpr int kRows = kSMs * 16, kWords = 32768;

// The first step of a radix select: how much probability each leading digit has. Most values share two digits.
template <bool kByWarp>
__device__ void digits(const float* in, float* out) {
  __shared__ int bins[256];
  if (threadIdx.x < 256) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < kWords; i += 512) {
    const float v = in[size_t(blockIdx.x) * kWords + i] + 96.0f;
    const int digit = __float_as_int(v) >> 23 & 255, amount = int(v);
    if (!kByWarp) atomicAdd(bins + digit, amount);
    else {
      for (unsigned left = ~0u; left;) {
        const int chosen = __shfl_sync(~0u, digit, __ffs(left) - 1);
        const unsigned same = __ballot_sync(~0u, digit == chosen);
        const int sum = __reduce_add_sync(~0u, digit == chosen ? amount : 0);
        if (threadIdx.x % 32 == 0) atomicAdd(bins + chosen, sum);
        left &= ~same;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x < 256) out[blockIdx.x * 256 + threadIdx.x] = float(bins[threadIdx.x]);
}
__global__ void digit_amounts_fault(const float* in, float* out) { digits<false>(in, out); }
__global__ void digit_amounts_fix(const float* in, float* out) { digits<true>(in, out); }
Unseen amounts("digit_amounts", {size_t(kRows) * kWords, size_t(kRows) * 256, 61, [](bool fixed, const float* in, float* out) {
                                   (fixed ? digit_amounts_fix : digit_amounts_fault)<<<kRows, 512>>>(in, out);
                                 }, 97});

constexpr int kPlaces = 512 * 512, kChannels = 64, kImages = 8;

// From planes to pixels, as a layout is changed: a pixel to each thread.
__global__ void planes_to_pixels_fault(const float* in, float* out) {
  const size_t image = size_t(blockIdx.y) * kPlaces * kChannels;
  const int place = blockIdx.x * 256 + threadIdx.x;
  for (int c = 0; c < kChannels; ++c) out[image + size_t(place) * kChannels + c] = in[image + size_t(c) * kPlaces + place] * 0.5f;
}
__global__ void planes_to_pixels_fix(const float* in, float* out) {
  __shared__ float tile[kChannels][33];
  const size_t image = size_t(blockIdx.y) * kPlaces * kChannels;
  const int first = blockIdx.x * 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int c = warp; c < kChannels; c += 8) tile[c][lane] = in[image + size_t(c) * kPlaces + first + lane] * 0.5f;
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kChannels; i += 256) out[image + size_t(first) * kChannels + i] = tile[i % kChannels][i / kChannels];
}
Unseen pixels("planes_to_pixels", {size_t(kImages) * kPlaces * kChannels, size_t(kImages) * kPlaces * kChannels, 251, [](bool fixed, const float* in, float* out) {
                                     if (fixed) planes_to_pixels_fix<<<dim3(kPlaces / 32, kImages), 256>>>(in, out);
                                     else planes_to_pixels_fault<<<dim3(kPlaces / 256, kImages), 256>>>(in, out);
                                   }, 997});

}  // namespace
