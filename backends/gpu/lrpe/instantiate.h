/* Every kind of lrpe kernel, by a macro LRPE_INSTANTIATE(T, E, A) of storage type, encoding and activation. */
#define LRPE_ACTIVATIONS(T, E)                                                                                         \
    LRPE_INSTANTIATE(T, E, none)                                                                                       \
    LRPE_INSTANTIATE(T, E, silu)                                                                                       \
    LRPE_INSTANTIATE(T, E, elementwise)                                                                                \
    LRPE_INSTANTIATE(T, E, softmax)
#define LRPE_ENCODINGS(T)                                                                                              \
    LRPE_ACTIVATIONS(T, half)                                                                                          \
    LRPE_ACTIVATIONS(T, interleaved)                                                                                   \
    LRPE_ACTIVATIONS(T, cosine)
LRPE_ENCODINGS(f32)
LRPE_ENCODINGS(f16)
LRPE_ENCODINGS(bf16)
#undef LRPE_ACTIVATIONS
#undef LRPE_ENCODINGS
