// Kernels at the rate of an arithmetic pipe: only fewer or cheaper operations help.
#include <cuda_fp16.h>

#include "../pair.cuh"

namespace {

constexpr int kCount = 132 * 2048 * 4;

template <typename T>
class Elementwise : public Pair {
 public:
  Elementwise() : in_(kCount), out_(kCount) { fill(in_, 5); }
  void reset() override { out_.clear(); }
  std::vector<double> result() const override { return out_.sample(61); }

 protected:
  DeviceArray<T> in_, out_;
};

// Separate multiply and add. With a = 1 and small integers both forms are exact.
__global__ void unfused_multiply_fault(const float* in, float* out, float a, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i], y = x + 1, z = x + 2, w = x + 3;
  for (int r = 0; r < rounds; ++r) {
    x = __fadd_rn(__fmul_rn(x, a), 1.0f);
    y = __fadd_rn(__fmul_rn(y, a), 2.0f);
    z = __fadd_rn(__fmul_rn(z, a), 3.0f);
    w = __fadd_rn(__fmul_rn(w, a), 4.0f);
  }
  out[i] = x + y + z + w;
}

__global__ void unfused_multiply_fix(const float* in, float* out, float a, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i], y = x + 1, z = x + 2, w = x + 3;
  for (int r = 0; r < rounds; ++r) {
    x = fmaf(x, a, 1.0f);
    y = fmaf(y, a, 2.0f);
    z = fmaf(z, a, 3.0f);
    w = fmaf(w, a, 4.0f);
  }
  out[i] = x + y + z + w;
}

struct UnfusedMultiply : Elementwise<float> {
  void launch(bool fixed) override {
    (fixed ? unfused_multiply_fix : unfused_multiply_fault)<<<kCount / 256, 256>>>(in_.get(), out_.get(), 1.0f, 256);
  }
};
Register<UnfusedMultiply> unfused("unfused_multiply", "arithmetic");

template <typename T>
__device__ void horner(const float* in, float* out, int degree) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const T x = T(in[i]) * T(0.125);
  T a = 1, b = 2, c = 3, d = 4;
  for (int k = 0; k < degree; ++k) {
    a = a * x + T(1);
    b = b * x + T(2);
    c = c * x + T(3);
    d = d * x + T(4);
  }
  out[i] = float(a + b + c + d);
}

__global__ void needless_double_fault(const float* in, float* out, int degree) { horner<double>(in, out, degree); }
__global__ void needless_double_fix(const float* in, float* out, int degree) { horner<float>(in, out, degree); }

struct NeedlessDouble : Elementwise<float> {
  void launch(bool fixed) override {
    (fixed ? needless_double_fix : needless_double_fault)<<<kCount / 256, 256>>>(in_.get(), out_.get(), 256);
  }
  double tolerance() const override { return 1e-5; }
};
Register<NeedlessDouble> doubles("needless_double", "arithmetic");

// e^x + e^2x + ... + e^32x: 32 exponentials, or one and a chain of products.
__global__ void many_exponentials_fault(const float* in, float* out, float scale) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = in[i] * scale;
  float sum = 0;
#pragma unroll
  for (int k = 1; k <= 32; ++k) sum += __expf(x * k);
  out[i] = sum;
}

__global__ void many_exponentials_fix(const float* in, float* out, float scale) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float e = __expf(in[i] * scale);
  float power = 1, sum = 0;
#pragma unroll
  for (int k = 1; k <= 32; ++k) {
    power *= e;
    sum += power;
  }
  out[i] = sum;
}

struct ManyExponentials : Elementwise<float> {
  void launch(bool fixed) override {
    (fixed ? many_exponentials_fix : many_exponentials_fault)<<<kCount / 256, 256>>>(in_.get(), out_.get(), -0.01f);
  }
  double tolerance() const override { return 1e-4; }
};
Register<ManyExponentials> exponentials("many_exponentials", "arithmetic");

// Remainders by a divisor the compiler does not know, or by the mask it stands for.
__global__ void runtime_divisor_fault(const unsigned* in, unsigned* out, unsigned divisor, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = in[i] + i, sum = 0;
  for (int r = 0; r < rounds; ++r) {
    sum += word % divisor;
    word = word * 1664525u + 1013904223u;
  }
  out[i] = sum;
}

__global__ void runtime_divisor_fix(const unsigned* in, unsigned* out, unsigned divisor, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned mask = divisor - 1;
  unsigned word = in[i] + i, sum = 0;
  for (int r = 0; r < rounds; ++r) {
    sum += word & mask;
    word = word * 1664525u + 1013904223u;
  }
  out[i] = sum;
}

struct RuntimeDivisor : Elementwise<unsigned> {
  void launch(bool fixed) override {
    (fixed ? runtime_divisor_fix : runtime_divisor_fault)<<<kCount / 256, 256>>>(in_.get(), out_.get(), 4096u, 128);
  }
};
Register<RuntimeDivisor> divisor("runtime_divisor", "arithmetic");

// Half precision one value at a time uses half of every packed instruction.
__global__ void scalar_half_fault(const __half* in, __half* out, int rounds) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  const __half a = __float2half(1.0f), b = __float2half(1.0f);
  __half x[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) x[k] = in[i + k];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = __hfma(x[k], a, b);
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[i + k] = x[k];
}

__global__ void scalar_half_fix(const __half* in, __half* out, int rounds) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  const __half2 a = __float2half2_rn(1.0f), b = __float2half2_rn(1.0f);
  const __half2* pairs = reinterpret_cast<const __half2*>(in);
  __half2 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = pairs[i + k];
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = __hfma2(x[k], a, b);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) reinterpret_cast<__half2*>(out)[i + k] = x[k];
}

struct ScalarHalf : Elementwise<__half> {
  void launch(bool fixed) override {
    (fixed ? scalar_half_fix : scalar_half_fault)<<<kCount / 8 / 256, 256>>>(in_.get(), out_.get(), 1024);
  }
};
Register<ScalarHalf> half("scalar_half", "arithmetic");

}  // namespace
