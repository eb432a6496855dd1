/* What a thread has under way of rows that it reads one after the other. Vectors come as late as its waits allow, and until then their
 * places hold NaN: a thread that takes a row too early, which a GPU may let pass, has wrong results. */
#ifndef COPES_BACKENDS_HIP_CPU_READ_AHEAD_H
#define COPES_BACKENDS_HIP_CPU_READ_AHEAD_H

#include "vendor.h"

namespace COPES_GPU
{

/* ROWS of PARTS vectors of 16 or 8 bytes, as CUDA's. */
template <int PARTS, int ROWS> struct read_ahead {
    static constexpr int DEPTH = ROWS;
    static constexpr int BYTES = 0; /* of shared memory */
    struct place {
        alignas(16) char vector[16];
        const void *from; /* nullptr: nothing is under way */
        size_t size;
        int row; /* with which it comes */
    };
    mutable place places[ROWS * PARTS] = {};
    int ended = 0; /* rows */

    explicit read_ahead(char *)
    {
    }
    template <typename Vector> void start(int row, int part, const void *from, bool)
    {
        place &to = places[row % ROWS * PARTS + part];
        memset(to.vector, 0xff, sizeof to.vector);
        to.from = from;
        to.size = sizeof(Vector);
        to.row = ended;
    }
    void end_row()
    {
        ended++;
    }
    template <int COUNT = 1> void wait()
    {
        wait_for(ended - ROWS + COUNT);
    }
    void wait_for_all() const
    {
        wait_for(ended);
    }
    template <typename Vector> Vector take(int row, int part) const
    {
        Vector vector;
        memcpy(static_cast<void *>(&vector), places[row % ROWS * PARTS + part].vector, sizeof vector);
        return vector;
    }

  private:
    void wait_for(int rows) const
    {
        for (place &to : places) {
            if (to.from == nullptr || to.row >= rows)
                continue;
            memcpy(to.vector, to.from, to.size);
            to.from = nullptr;
        }
    }
};

} // namespace COPES_GPU

#endif
