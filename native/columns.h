// Typed columns that grow by realloc (the untouched slack is never resident) and become Arrow arrays without a copy. A
// column that is null throughout holds no memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace timesink {

// Raw memory of trivially copyable values; what std::vector cannot do is grow by mremap.
class Bytes {
public:
    Bytes() = default;
    Bytes(Bytes&& other) noexcept { swap(other); }
    Bytes& operator=(Bytes&& other) noexcept {
        swap(other);
        return *this;
    }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    ~Bytes() { std::free(data_); }

    uint8_t* data() { return data_; }
    const uint8_t* data() const { return data_; }
    size_t capacity() const { return capacity_; }

    void reserve(size_t wanted) {
        if (wanted <= capacity_) return;
        size_t grown = capacity_ ? capacity_ * 2 : 4096;
        if (grown < wanted) grown = wanted;
        void* moved = std::realloc(data_, grown);
        if (!moved) throw std::bad_alloc();
        data_ = static_cast<uint8_t*>(moved);
        capacity_ = grown;
    }

    // Gives the slack back once a column is complete.
    void shrink(size_t used) {
        if (void* moved = used ? std::realloc(data_, used) : nullptr) {
            data_ = static_cast<uint8_t*>(moved);
            capacity_ = used;
        }
    }

    void swap(Bytes& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(capacity_, other.capacity_);
    }

private:
    uint8_t* data_ = nullptr;
    size_t capacity_ = 0;
};

class AnyColumn;

// A table under construction: its columns register themselves in the order of their declaration.
struct Table {
    std::vector<AnyColumn*> columns;
    explicit Table(const char* table_name) : name(table_name) {}
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;
    size_t rows() const;
    const char* name;
    int64_t seen = 0;  // rows the file has, those outside of a window included
};

class AnyColumn {
public:
    AnyColumn(Table& table, const char* name, const char* arrow_format, size_t width)
        : name(name), arrow_format(arrow_format), width(width) {
        table.columns.push_back(this);
    }
    AnyColumn(const AnyColumn&) = delete;
    AnyColumn& operator=(const AnyColumn&) = delete;

    size_t size() const { return size_; }
    size_t nulls() const { return nulls_; }
    bool valid(size_t row) const {
        return nulls_ == 0 || (nulls_ < size_ && (bits_.data()[row >> 3] >> (row & 7) & 1));
    }

    // Adds the rows of another column of the same type, their values put through `codes` where it is given.
    void append(const AnyColumn& other, const uint32_t* codes);
    // Without rows; the memory is kept.
    void clear() { size_ = nulls_ = 0; }
    // Puts row order[i] at place i.
    void permute(const std::vector<uint32_t>& order);
    // Hands over values and validity (empty where nothing is null); the column is empty afterwards.
    std::pair<Bytes, Bytes> release();

    const char* const name;
    const char* const arrow_format;
    const size_t width;

protected:
    // Makes room for the next row, and notes whether it is null.
    void extend(bool is_valid) {
        if (size_ == nulls_ && size_) first_value();
        const size_t end = (size_ + 1) * width;
        if (end > values_.capacity()) values_.reserve(end);
        if (!is_valid && nulls_ == 0) first_null();
        if (nulls_ || !is_valid) {
            const size_t byte = size_ >> 3;
            if (byte >= bits_.capacity()) bits_.reserve(byte + 1);
            if ((size_ & 7) == 0) bits_.data()[byte] = 0;
            bits_.data()[byte] = static_cast<uint8_t>(bits_.data()[byte] | (is_valid ? 1u << (size_ & 7) : 0u));
            nulls_ += !is_valid;
        }
        ++size_;
    }
    void first_null();
    void first_value();
    void append_bits(const AnyColumn& other, bool has_values);

    Bytes values_, bits_;
    size_t size_ = 0, nulls_ = 0;
};

template <class T>
struct ArrowFormat;
template <> struct ArrowFormat<int64_t> { static constexpr const char* text = "l"; };
template <> struct ArrowFormat<uint64_t> { static constexpr const char* text = "L"; };
template <> struct ArrowFormat<int32_t> { static constexpr const char* text = "i"; };
template <> struct ArrowFormat<uint32_t> { static constexpr const char* text = "I"; };
template <> struct ArrowFormat<uint8_t> { static constexpr const char* text = "C"; };
template <> struct ArrowFormat<double> { static constexpr const char* text = "g"; };

template <class T>
class Column : public AnyColumn {
public:
    Column(Table& table, const char* name) : AnyColumn(table, name, ArrowFormat<T>::text, sizeof(T)) {}

    void push(T value) { push_if(true, value); }
    void push_if(bool is_valid, T value) {
        if (!is_valid && nulls_ == size_) {  // nothing but nulls so far: they are counted
            ++nulls_;
            ++size_;
            return;
        }
        if (!is_valid) value = T{};
        const size_t at = size_ * sizeof(T);
        extend(is_valid);
        std::memcpy(values_.data() + at, &value, sizeof(T));
    }
    const T* data() const { return reinterpret_cast<const T*>(values_.data()); }
    T* data() { return reinterpret_cast<T*>(values_.data()); }
};

inline size_t Table::rows() const { return columns.empty() ? 0 : columns.front()->size(); }

}  // namespace timesink
