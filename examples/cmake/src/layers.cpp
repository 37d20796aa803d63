// Calls kernels of two libraries: a dense layer whose weights are packed once, a gather whose
// indices are checked, and a product with a number.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "dense.h"
#include "saxpy.h"

namespace {

constexpr std::int64_t features = 64;
constexpr std::int64_t classes = 10;

// Throws the message of a module for a failed call.
void check(std::int32_t status, const char *message) {
    if (status != 0) throw std::runtime_error(message);
}

// A tensor that borrows the elements of a vector.
template <typename Element>
class Tensor {
public:
    Tensor(std::vector<Element> &data, std::vector<std::int64_t> shape, std::uint8_t code)
        : shape_(std::move(shape)) {
        tensor_ = {data.data(), {kDLCPU, 0}, static_cast<std::int32_t>(shape_.size()),
                   {code, 8 * sizeof(Element), 1}, shape_.data(), nullptr, 0};
    }
    const DLTensor *get() const { return &tensor_; }
    DLTensor *get() { return &tensor_; }

private:
    std::vector<std::int64_t> shape_;
    DLTensor tensor_;
};

}  // namespace

int main() {
    std::vector<float> weights(features * classes);
    for (std::int64_t k = 0; k < features; k++) {
        for (std::int64_t j = 0; j < classes; j++) weights[k * classes + j] = (j - 5) / 100.0f;
    }
    std::vector<float> bias(classes, 0.0f);

    // The raw entries: pointers and run-time integers. They fail if memory for temporaries is
    // missing, or if the CPU can run none of the targets.
    const std::int64_t bytes = dense_pack_W_bytes();
    check(bytes < 0, "the CPU can run none of the targets");
    std::vector<char> packed(bytes);
    check(dense_pack_W(weights.data(), packed.data()), dense_last_error());
    for (std::int64_t rows : {1, 3}) {
        std::vector<float> x(rows * features, 1.0f), y(rows * classes), zero(y), twice(y);
        check(dense_prepacked(x.data(), packed.data(), bias.data(), y.data(), rows),
              dense_last_error());
        const auto count = static_cast<std::int64_t>(y.size());
        check(saxpy(2.0f, y.data(), zero.data(), twice.data(), count), saxpy_last_error());
        std::printf("%d row(s): twice the classes", static_cast<int>(rows));
        for (std::int64_t j = 5; j < classes; j++) std::printf(" %.2f", twice[j]);
        std::printf("\n");
    }

    // The checked entry of a kernel whose indices are data.
    std::vector<float> table(4 * features), found(2 * features);
    std::vector<std::int32_t> index = {0, 4};
    Tensor<float> X(table, {4, features}, kDLFloat), Y(found, {2, features}, kDLFloat);
    Tensor<std::int32_t> I(index, {2}, kDLInt);
    if (gather_rows_dl(X.get(), I.get(), Y.get()) == 0) return 1;
    std::printf("%s\n", dense_last_error());
    return 0;
}
