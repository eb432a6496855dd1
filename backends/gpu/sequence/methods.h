/* The methods of softmax over the sequence. */
#ifndef COPES_BACKENDS_GPU_SEQUENCE_METHODS_H
#define COPES_BACKENDS_GPU_SEQUENCE_METHODS_H

#include "backends/gpu/families.h"
#include "backends/gpu/names.h"

namespace COPES_GPU::sequence
{

/* sequence.cu: may the tensors be read and written in whole vectors of so many elements? */
bool is_in_vectors(const copes_lrpe_problem &problem, int vector);

/* The kernels of a vendor's own folder. False where they do not take the problem. plan->workspace is then 0 or, where
 * addresses alone keep a kernel from the problem, the workspace of this kernel. */
template <typename T>
bool plan_fast(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);
template <typename T> void list_fast(variant_list *list);

inline constexpr variant_word columns_name = "sequence_columns";

/* Of at least so many tokens, a second launch costs little. */
enum { LONG_SEQUENCE = 16384 };

/* columns.cu: every problem in one launch, without a workspace. */
template <typename T>
copes_status plan_columns(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);
template <typename T> void list_columns(variant_list *list);

/* passes.cu: one pass for the caller; the first one of a long sequence has a workspace of parts_bytes. */
template <typename T>
copes_status plan_pass(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);

/* passes.cu: both passes, a launch each, with a workspace of parts_bytes. */
bool takes_passes(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);
int64_t parts_bytes(const gpu_device &device, const copes_lrpe_problem &problem);
template <typename T>
copes_status plan_passes(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);
template <typename T> void list_passes(variant_list *list);

} // namespace COPES_GPU::sequence

#endif
