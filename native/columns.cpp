#include "columns.h"

namespace timesink {

void AnyColumn::first_null() {
    const size_t bytes = (size_ >> 3) + 1;
    bits_.reserve(bytes);
    std::memset(bits_.data(), 0xff, bytes);
    if (size_ & 7) bits_.data()[size_ >> 3] = static_cast<uint8_t>((1u << (size_ & 7)) - 1);
}

void AnyColumn::first_value() {
    values_.reserve(size_ * width);
    std::memset(values_.data(), 0, size_ * width);
    bits_.reserve((size_ >> 3) + 1);
    std::memset(bits_.data(), 0, (size_ >> 3) + 1);
}

namespace {

template <class Word>
void gather(const uint8_t* from, uint8_t* to, const std::vector<uint32_t>& order) {
    for (size_t i = 0; i < order.size(); ++i)
        std::memcpy(to + i * sizeof(Word), from + order[i] * sizeof(Word), sizeof(Word));
}

}  // namespace

void AnyColumn::permute(const std::vector<uint32_t>& order) {
    if (order.empty() || nulls_ == size_) return;
    Bytes sorted;
    sorted.reserve(size_ * width);
    switch (width) {
        case 8: gather<uint64_t>(values_.data(), sorted.data(), order); break;
        case 4: gather<uint32_t>(values_.data(), sorted.data(), order); break;
        default: gather<uint8_t>(values_.data(), sorted.data(), order); break;
    }
    values_.swap(sorted);
    if (!nulls_) return;
    Bytes bits;
    bits.reserve((size_ >> 3) + 1);
    std::memset(bits.data(), 0, (size_ >> 3) + 1);
    for (size_t i = 0; i < size_; ++i)
        if (valid(order[i])) bits.data()[i >> 3] = static_cast<uint8_t>(bits.data()[i >> 3] | 1u << (i & 7));
    bits_.swap(bits);
}

std::pair<Bytes, Bytes> AnyColumn::release() {
    values_.shrink(size_ * width);
    std::pair<Bytes, Bytes> parts;
    parts.first.swap(values_);
    if (nulls_) {
        bits_.shrink((size_ >> 3) + 1);
        parts.second.swap(bits_);
    }
    size_ = nulls_ = 0;
    return parts;
}

}  // namespace timesink
