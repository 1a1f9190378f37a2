/* The last part of each kernels_<set>.c: the table named TABLE over the kernels compiled above it. */
#include "model/kernels_causal.h"
#include "model/kernels_rows.h"
#include "model/kernels_sums.h"

const struct kernels TABLE = {
    .name = TABLE_NAME,
    .peak_bits = peak_bits,
    .fixed_add = fixed_add,
    .fixed_store = fixed_store,
    .fixed_merge = fixed_merge,
    .fixed_mean = fixed_mean,
    .float_mean = float_mean,
    .norm2 = norm2,
    .add = add,
    .store = store,
    .bias_add = bias_add,
    .bias_residual = bias_residual,
    .bias_gelu = bias_gelu,
    .gelu_grad = gelu_grad,
    .column_sum = column_sum,
    .norm_forward = norm_forward,
    .norm_input_grad = norm_input_grad,
    .norm_weight_grad = norm_weight_grad,
    .softmax = softmax,
    .softmax_again = softmax_again,
    .softmax_grad = softmax_grad,
    .dot = dot,
    .cross_entropy = cross_entropy,
    .adamw = adamw,
    .dropout = dropout,
};
