// What pipes do beside floating point: remainders, bits, conversions, doubles; code that does not fit its cache.
#include "../../unseen7/pairs/shared.cuh"

namespace {

constexpr int kNumbers = 1 << 21, kSquarings = 64;
using Wide = unsigned long long;

// Squares modulo a prime known at run time: by the remainder of a division of 64 bits, or by Barrett's two products.
__global__ void power_by_remainder_fault(const float* in, float* out, Wide prime) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  Wide x = Wide(in[i]) + 2;
#pragma unroll 1
  for (int turn = 0; turn < kSquarings; ++turn) x = (x * x + 12345) % prime;
  out[i] = float(x & 0xffffff);
}
__global__ void power_by_remainder_fix(const float* in, float* out, Wide prime, Wide reciprocal) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  Wide x = Wide(in[i]) + 2;
#pragma unroll 1
  for (int turn = 0; turn < kSquarings; ++turn) {
    const Wide square = x * x + 12345;
    x = square - __umul64hi(square, reciprocal) * prime;
    if (x >= prime) x -= prime;
  }
  out[i] = float(x & 0xffffff);
}
Unseen powers("power_by_remainder", {kNumbers, kNumbers, 16777213, [](bool fixed, const float* in, float* out) {
                                       constexpr Wide kPrime = 2147483647ull;
                                       if (fixed) power_by_remainder_fix<<<kNumbers / 256, 256>>>(in, out, kPrime, ~0ull / kPrime);
                                       else power_by_remainder_fault<<<kNumbers / 256, 256>>>(in, out, kPrime);
                                     }});

constexpr int kSignatures = 1 << 19, kWords = 16, kAsked = 256;

__device__ inline unsigned mixed(unsigned x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}
// A carry-save adder of bits: the sums stay in `low`, the carries come back.
__device__ inline unsigned carried(unsigned& low, unsigned a, unsigned b) {
  const unsigned carry = (low & a) | (low & b) | (a & b);
  low = low ^ a ^ b;
  return carry;
}
// The nearest of 256 signatures of 512 bits by the bits that differ: each word's are counted, or 15 words' are added first.
template <bool kAdded>
__device__ void nearest_signature(const float* in, float* out) {
  __shared__ uint4 asked[kAsked][kWords / 4];
  const int i = blockIdx.x * 256 + threadIdx.x;
  for (int k = threadIdx.x; k < kAsked * kWords; k += 256) (&asked[0][0].x)[k] = mixed(__float_as_uint(in[k]) + k);
  unsigned own[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) own[w] = mixed(__float_as_uint(in[size_t(w) * kSignatures + i]) + i);
  __syncthreads();
  int least = 1 << 20;
#pragma unroll 1
  for (int q = 0; q < kAsked; ++q) {
    unsigned d[kWords];
#pragma unroll
    for (int w = 0; w < kWords; w += 4) {
      const uint4 four = asked[q][w / 4];
      d[w] = own[w] ^ four.x, d[w + 1] = own[w + 1] ^ four.y, d[w + 2] = own[w + 2] ^ four.z, d[w + 3] = own[w + 3] ^ four.w;
    }
    int apart = 0;
    if (!kAdded) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) apart += __popc(d[w]);
    } else {
      unsigned ones = d[0], twos[7], fours[3];
#pragma unroll
      for (int w = 0; w < 7; ++w) twos[w] = carried(ones, d[2 * w + 1], d[2 * w + 2]);
#pragma unroll
      for (int w = 0; w < 3; ++w) fours[w] = carried(twos[0], twos[2 * w + 1], twos[2 * w + 2]);
      const unsigned eights = carried(fours[0], fours[1], fours[2]);
      apart = __popc(d[15]) + __popc(ones) + 2 * __popc(twos[0]) + 4 * __popc(fours[0]) + 8 * __popc(eights);
    }
    least = min(least, apart * kAsked + q);
  }
  out[i] = float(least);
}
__global__ void __launch_bounds__(256) signatures_by_popcount_fault(const float* in, float* out) { nearest_signature<false>(in, out); }
__global__ void __launch_bounds__(256) signatures_by_popcount_fix(const float* in, float* out) { nearest_signature<true>(in, out); }
Unseen signatures("signatures_by_popcount", {size_t(kSignatures) * kWords, kSignatures, 16777213, [](bool fixed, const float* in, float* out) {
                                               (fixed ? signatures_by_popcount_fix : signatures_by_popcount_fault)<<<kSignatures / 256, 256>>>(in, out);
                                             }});

constexpr int kQuantised = 1 << 25, kScales = 24;

// Fake quantisation by 24 scales in turn: to an integer and back, or rounded by what fp32 cannot hold.
template <bool kConverted>
__device__ void quantised(const float* in, float* out) {
  const size_t i = blockIdx.x * size_t(256) + threadIdx.x;
  float v = in[i];
#pragma unroll
  for (int k = 0; k < kScales; ++k) {
    const float scale = 40.0f - 1.3f * k, product = __fmul_rn(v, scale);
    v = kConverted ? __int2float_rn(__float2int_rn(product)) : __fadd_rn(__fadd_rn(product, 12582912.0f), -12582912.0f);
    v = __fmul_rn(v, 1.0f / scale);
  }
  out[i] = v;
}
__global__ void quantised_by_conversion_fault(const float* in, float* out) { quantised<true>(in, out); }
__global__ void quantised_by_conversion_fix(const float* in, float* out) { quantised<false>(in, out); }
Unseen quantisations("quantised_by_conversion", {kQuantised, kQuantised, 1021, [](bool fixed, const float* in, float* out) {
                                                   (fixed ? quantised_by_conversion_fix : quantised_by_conversion_fault)<<<kQuantised / 256, 256>>>(in, out);
                                                 }, 997});

constexpr int kPlaces = 1 << 24, kTerms = 128;

// A series of 128 terms for each value, in doubles or in floats.
template <typename T>
__device__ void density(const float* in, float* out) {
  const size_t i = blockIdx.x * size_t(256) + threadIdx.x;
  const T x = T(in[i]) * T(0.0009);
  T sum = T(1);
#pragma unroll
  for (int k = kTerms; k > 0; --k) sum = sum * x + T(1.0 / k);
  out[i] = float(sum);
}
__global__ void density_in_doubles_fault(const float* in, float* out) { density<double>(in, out); }
__global__ void density_in_doubles_fix(const float* in, float* out) { density<float>(in, out); }
Unseen densities("density_in_doubles", {kPlaces, kPlaces, 1021, [](bool fixed, const float* in, float* out) {
                                          (fixed ? density_in_doubles_fix : density_in_doubles_fault)<<<kPlaces / 256, 256>>>(in, out);
                                        }, 997, 1e-3});

constexpr int kKinds = 64, kRounds = 480, kItems = kSMs * 64 * 16;

// An operation of its own for each kind of item: 15 KB of code that no other kind shares.
template <int kKind>
__device__ __noinline__ unsigned operated(unsigned x) {
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const unsigned at = unsigned(kKind) * 7919u + unsigned(i) * 104729u + 13u;
    x = (x ^ at * 2654435761u) * (at * 40503u | 1u);
  }
  return x;
}
template <int kKind = 0>
__device__ unsigned operated_by(int kind, unsigned x) {
  if constexpr (kKind == kKinds) return x;
  else return kind == kKind ? operated<kKind>(x) : operated_by<kKind + 1>(kind, x);
}
// An item to each warp: as they come, each warp beside others of another kind, or those of one kind together.
template <bool kSorted>
__device__ void items_operated(const float* in, float* out) {
  constexpr int kOfKind = kItems / kKinds;
  const int warp = blockIdx.x * 8 + threadIdx.x / 32, kind = kSorted ? warp / kOfKind : warp % kKinds;
  const size_t i = size_t(kSorted ? warp % kOfKind * kKinds + kind : warp) * 32 + threadIdx.x % 32;
  out[i] = float(operated_by(kind, unsigned(in[i])) >> 8);
}
__global__ void operations_by_item_fault(const float* in, float* out) { items_operated<false>(in, out); }
__global__ void operations_by_item_fix(const float* in, float* out) { items_operated<true>(in, out); }
Unseen operations("operations_by_item", {size_t(kItems) * 32, size_t(kItems) * 32, 16777213, [](bool fixed, const float* in, float* out) {
                                           (fixed ? operations_by_item_fix : operations_by_item_fault)<<<kItems / 8, 256>>>(in, out);
                                         }, 61});

constexpr int kWorkers = kSMs * 2048, kEach = 16;

// The first number of each task whose hash ends in six zeros: a lane waits for the others at each task, or never.
__global__ void proof_of_work_fault(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const unsigned own = unsigned(in[i]) * kEach;
  unsigned sum = 0;
#pragma unroll 1
  for (int task = 0; task < kEach; ++task) {
    unsigned tried = 0;
    while (mixed(mixed(own + task) + tried) & 63) ++tried;
    sum += tried;
  }
  out[i] = float(sum);
}
__global__ void proof_of_work_fix(const float* in, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const unsigned own = unsigned(in[i]) * kEach;
  unsigned sum = 0, task = 0, tried = 0, seed = mixed(own);
  while (task < kEach) {
    const bool is_found = (mixed(seed + tried) & 63) == 0;
    sum += is_found ? tried : 0;
    task += is_found;
    tried = is_found ? 0 : tried + 1;
    if (is_found) seed = mixed(own + task);
  }
  out[i] = float(sum);
}
Unseen works("proof_of_work", {kWorkers, kWorkers, 16777213, [](bool fixed, const float* in, float* out) {
                                 (fixed ? proof_of_work_fix : proof_of_work_fault)<<<kWorkers / 256, 256>>>(in, out);
                               }});

}  // namespace
