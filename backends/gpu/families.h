/* The functions of the operator families that backend.cpp calls, for each storage type T: f32, f16 and bf16. */
#ifndef COPES_BACKENDS_GPU_FAMILIES_H
#define COPES_BACKENDS_GPU_FAMILIES_H

#include "backends/gpu/plan.h"
#include "backends/gpu/storage.h"

namespace COPES_GPU
{

/* Each plans every problem of its family. */
namespace act
{
template <typename T> copes_status plan(const gpu_device &device, const copes_act_problem &problem, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace act

namespace lrpe
{
template <typename T> copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace lrpe

/* Softmax over the sequence, alone (K = 0) or before an encoding. act and lrpe pass their problems on to it. `given`:
 * if backward, x is the softmax itself and not its argument. */
namespace sequence
{
template <typename T>
copes_status plan(const gpu_device &device, const copes_lrpe_problem &problem, bool given, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace sequence

namespace tpa
{
template <typename T> copes_status plan(const gpu_device &device, const copes_tpa_problem &problem, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace tpa

namespace qk
{
template <typename T> copes_status plan(const gpu_device &device, const copes_qk_problem &problem, copes_plan *plan);
/* lrpe passes its rotations of few tokens on to it. Returns false where it does not take them. */
template <typename T> bool plan_step(const gpu_device &device, const copes_lrpe_problem &problem, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace qk

namespace merge
{
template <typename T> copes_status plan(const gpu_device &device, const copes_merge_problem &problem, copes_plan *plan);
void list_variants(variant_list *list);
} // namespace merge

/* The variants of all families. */
void list_variants(variant_list *list);

/* The architecture that the code for the current device was compiled for, for gpu_device.architecture; an error where
 * this build has no code for the device. */
GPU(Error_t) find_code(int *architecture);

/* Limits a queue that has the whole device to the multiprocessors of its stream. `before`: the context's last queue,
 * whose results are reused where they still hold. */
copes_status find_stream_resources(const gpu_queue &before, gpu_queue *queue);

/* Fills in gpu_device.clusters. */
void count_clusters(gpu_queue *queue);

} // namespace COPES_GPU

#endif
