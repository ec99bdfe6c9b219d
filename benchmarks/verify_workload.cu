// A program of many equal steps, for checking verdicts: arithmetic, memory traffic, then a spin of a stated length.
// usage: verify_workload STEPS EXTRA; the spin lasts EXTRA (0.02 for 2 %) of the step's own time, which is measured
// first. Step times go to $TIMESINK_STEPS as JSON lines, with a checksum as the check.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t status = (call);                                                                  \
        if (status != cudaSuccess) {                                                                  \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));                      \
            return 1;                                                                                 \
        }                                                                                             \
    } while (0)

__global__ void multiply_add(float* out, long iterations) {
    float value = threadIdx.x * 1e-3f;
    for (long i = 0; i < iterations; ++i) value = fmaf(value, 0.999f, 0.001f);
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void stream_through(float* to, const float* from, long count) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x)
        to[i] = 3.0f * from[i] + 1.0f;
}

// Both sides launch it, so that they differ by its length alone.
__global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

int main(int argc, char** argv) {
    const char* path = std::getenv("TIMESINK_STEPS");
    if (argc != 3 || path == nullptr) {
        std::fprintf(stderr, "usage: TIMESINK_STEPS=FILE verify_workload STEPS EXTRA\n");
        return 2;
    }
    const int steps = std::atoi(argv[1]);
    const double extra = std::atof(argv[2]);
    const long iterations = 150000, count = 128L << 20;
    const int blocks = 132 * 8, threads = 256, first = 30;

    float *out, *to, *from;
    CHECK(cudaMalloc(&out, sizeof(float) * blocks * threads));
    CHECK(cudaMalloc(&to, sizeof(float) * count));
    CHECK(cudaMalloc(&from, sizeof(float) * count));
    CHECK(cudaMemset(from, 0, sizeof(float) * count));
    CHECK(cudaDeviceSynchronize());

    double* seconds = new double[first + steps];
    unsigned long long spin_ns = 0;
    for (int step = 0; step < first + steps; ++step) {
        if (step == first) {
            double own[first];
            std::copy(seconds, seconds + first, own);
            std::sort(own, own + first);
            spin_ns = static_cast<unsigned long long>(own[first / 2] * 1e9 * extra);
        }
        const auto start = std::chrono::steady_clock::now();
        multiply_add<<<blocks, threads>>>(out, iterations);
        stream_through<<<blocks, threads>>>(to, from, count);
        spin<<<1, 1>>>(spin_ns);
        CHECK(cudaDeviceSynchronize());
        seconds[step] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    float head[256];
    CHECK(cudaMemcpy(head, to, sizeof head, cudaMemcpyDeviceToHost));
    double checksum = 0;
    for (float value : head) checksum += value;

    FILE* file = std::fopen(path, "w");
    if (file == nullptr) return 3;
    for (int step = 0; step < steps; ++step)
        std::fprintf(file, "{\"step\": %d, \"seconds\": %.9f, \"check\": \"%.6f\"}\n", step + 1, seconds[first + step], checksum);
    std::fclose(file);
    return 0;
}
