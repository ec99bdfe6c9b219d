// A program of many equal steps, for checking verdicts: arithmetic, then memory traffic, both scaled by one factor.
// usage: verify_workload STEPS SCALE; step times go to $TIMESINK_STEPS as JSON lines, with a checksum as the receipt.
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

int main(int argc, char** argv) {
    const char* path = std::getenv("TIMESINK_STEPS");
    if (argc != 3 || path == nullptr) {
        std::fprintf(stderr, "usage: TIMESINK_STEPS=FILE verify_workload STEPS SCALE\n");
        return 2;
    }
    const int steps = std::atoi(argv[1]);
    const double scale = std::atof(argv[2]);
    const long iterations = static_cast<long>(150000 * scale);
    const long most = 160L << 20, count = static_cast<long>((128L << 20) * scale);
    const int blocks = 132 * 8, threads = 256;
    if (count > most) return 2;

    float *out, *to, *from;
    CHECK(cudaMalloc(&out, sizeof(float) * blocks * threads));
    CHECK(cudaMalloc(&to, sizeof(float) * most));
    CHECK(cudaMalloc(&from, sizeof(float) * most));
    CHECK(cudaMemset(from, 0, sizeof(float) * most));
    CHECK(cudaDeviceSynchronize());

    double* seconds = new double[steps];
    for (int step = 0; step < steps; ++step) {
        const auto start = std::chrono::steady_clock::now();
        multiply_add<<<blocks, threads>>>(out, iterations);
        stream_through<<<blocks, threads>>>(to, from, count);
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
        std::fprintf(file, "{\"step\": %d, \"seconds\": %.9f, \"receipt\": \"%.6f\"}\n", step + 1, seconds[step], checksum);
    std::fclose(file);
    return 0;
}
