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

void AnyColumn::append(const AnyColumn& other, const uint32_t* codes) {
    const bool has_values = other.nulls_ < other.size_;
    if (!has_values && nulls_ == size_) {
        size_ += other.size_;
        nulls_ += other.nulls_;
        return;
    }
    if (size_ == nulls_ && size_) first_value();
    values_.reserve((size_ + other.size_) * width);
    uint8_t* to = values_.data() + size_ * width;
    if (!has_values) std::memset(to, 0, other.size_ * width);
    else std::memcpy(to, other.values_.data(), other.size_ * width);
    if (has_values && codes)
        for (size_t i = 0; i < other.size_; ++i) {
            uint32_t code;
            std::memcpy(&code, to + i * sizeof code, sizeof code);
            code = codes[code];  // of a null: 0, which stays 0
            std::memcpy(to + i * sizeof code, &code, sizeof code);
        }
    if (nulls_ || other.nulls_) append_bits(other, has_values);
    size_ += other.size_;
    nulls_ += other.nulls_;
}

void AnyColumn::append_bits(const AnyColumn& other, bool has_values) {
    if (nulls_ == 0) first_null();
    bits_.reserve(((size_ + other.size_) >> 3) + 1);
    uint8_t* to = bits_.data() + (size_ >> 3);
    const unsigned shift = size_ & 7;
    const size_t bytes = (other.size_ + 7) >> 3;
    if (shift == 0) *to = 0;
    for (size_t i = 0; i < bytes; ++i) {
        unsigned bits = !has_values ? 0 : other.nulls_ ? other.bits_.data()[i] : 0xffu;
        if (i + 1 == bytes && other.size_ & 7) bits &= (1u << (other.size_ & 7)) - 1;
        to[i] = static_cast<uint8_t>(to[i] | bits << shift);
        if ((shift + other.size_ - 8 * i) > 8) to[i + 1] = static_cast<uint8_t>(bits >> (8 - shift));
    }
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
