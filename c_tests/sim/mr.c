/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registration and deregistration. */
#include "sim_internal.h"

#include <fcntl.h>

enum {
    KNOWN_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                   IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE,
    /* What makes the RDMA core pin for writing. */
    WRITING_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                     IBV_ACCESS_MW_BIND,
};

/* What a region is to be: the arguments of any of the registering calls. */
struct request {
    struct ibv_pd *pd;
    void *addr;
    size_t length;
    uint64_t iova;
    uint32_t access;
    bool has_memory; /* else it is a dma-buf */
    int fd;
};

static bool is_implicit(const struct request *request) {
    return request->addr == NULL && request->length == SIZE_MAX &&
           (request->access & IBV_ACCESS_ON_DEMAND);
}

/* The checks that the kernel and a modern provider make, in their order. */
static int check(const struct request *request) {
    uint32_t access = request->access;

    if (sim_get(&sim_settings.gone))
        return EIO;
    if (access & ~(uint32_t)KNOWN_ACCESS)
        return EINVAL;
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if ((access & IBV_ACCESS_ON_DEMAND) && !sim_get(&sim_settings.odp))
        return EOPNOTSUPP;
    if (is_implicit(request))
        return 0;
    if (request->length == 0 || request->length > sim_get(&sim_settings.max_mr_size))
        return EINVAL;
    if ((uintptr_t)request->addr + request->length < (uintptr_t)request->addr)
        return EINVAL;
    if (((uintptr_t)request->addr ^ request->iova) & (SIM_PAGE_SIZE - 1))
        return EINVAL;
    return 0;
}

static int pin(struct sim_pin *pin, const struct request *request) {
    memset(pin, 0, sizeof(*pin));
    if (!sim_get(&sim_settings.pins) || !request->has_memory ||
        (request->access & IBV_ACCESS_ON_DEMAND))
        return 0;
    return sim_pin(pin, request->addr, request->length, request->access & WRITING_ACCESS);
}

static void describe(struct sim_mr *mr, const struct request *request) {
    mr->ibv.context = request->pd->context;
    mr->ibv.pd = request->pd;
    mr->ibv.addr = request->addr;
    mr->ibv.length = request->length;
    mr->iova = request->iova;
    mr->access = request->access;
    mr->has_memory = request->has_memory;
}

static int check_dmabuf(int fd) {
    if (!sim_get(&sim_settings.dmabuf))
        return EOPNOTSUPP;
    return fcntl(fd, F_GETFD) < 0 ? EBADF : 0;
}

static int create(struct sim_thread *self, const struct request *request, struct ibv_mr **result) {
    struct sim_mr *mr;
    int err = request->has_memory ? 0 : check_dmabuf(request->fd);

    if (err == 0)
        err = check(request);
    if (err != 0)
        return err;
    mr = sim_mr_take(self);
    if (mr == NULL)
        return ENOMEM;
    err = pin(&mr->pin, request);
    if (err != 0) {
        sim_mr_give(self, mr);
        return err;
    }
    describe(mr, request);
    mr->ibv.handle = mr->index;
    mr->ibv.lkey = mr->ibv.rkey = mr->index << 8 | mr->use;
    sim_mr_publish(mr);
    *result = &mr->ibv;
    return 0;
}

static struct sim_call describe_call(enum sim_symbol symbol, const struct request *request) {
    return (struct sim_call){
        .symbol = symbol,
        .pd = request->pd,
        .addr = request->addr,
        .length = request->length,
        .iova = request->iova,
        .access = request->access,
        .fd = request->fd,
    };
}

static int create_with_features(struct sim_frame *frame, const struct request *request,
                                struct ibv_mr **mr) {
    struct sim_call call = describe_call(frame->symbol, request);

    call.result = sim_frame_enter(frame, request->addr, request->length);
    if (call.result == SIM_PROCEED)
        call.result = create(frame->self, request, mr);
    call.mr = *mr;
    call.succeeded = *mr != NULL;
    sim_frame_leave(frame, &call);
    return call.result;
}

static struct ibv_mr *reg(const struct request *request, enum sim_symbol symbol) {
    struct sim_frame frame;
    struct ibv_mr *mr = NULL;
    int err;

    sim_frame_begin(&frame, symbol);
    if (SIM_LIKELY(frame.features == 0))
        err = create(frame.self, request, &mr);
    else
        err = create_with_features(&frame, request, &mr);
    sim_frame_end(&frame, mr != NULL);
    if (mr == NULL)
        errno = err;
    return mr;
}

SIM_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    struct request request = {pd, addr, length, (uintptr_t)addr, (uint32_t)access, true, -1};

    return reg(&request, SIM_IBV_REG_MR);
}

SIM_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, int access) {
    struct request request = {pd, addr, length, iova, (uint32_t)access, true, -1};

    return reg(&request, SIM_IBV_REG_MR_IOVA);
}

SIM_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                           uint64_t iova, unsigned int access) {
    struct request request = {pd, addr, length, iova, access, true, -1};

    return reg(&request, SIM_IBV_REG_MR_IOVA2);
}

#ifndef SIM_WITHOUT_DMABUF
SIM_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                            uint64_t iova, int fd, int access) {
    /* As with real providers, the address of such a region is its offset in the buffer. */
    void *addr = (void *)(uintptr_t)offset;
    struct request request = {pd, addr, length, iova, (uint32_t)access, false, fd};

    return reg(&request, SIM_IBV_REG_DMABUF_MR);
}
#endif

/* The region keeps its keys. A failure to pin the new memory ends it, as a device error would. */
static int change(struct sim_mr *mr, const struct request *request, int flags) {
    struct sim_pin pinned = {0};
    int err;

    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        err = pin(&pinned, request);
        if (err != 0)
            return err;
    }
    sim_mr_retire(mr);
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        sim_unpin(&mr->pin);
        mr->pin = pinned;
    }
    describe(mr, request);
    sim_mr_publish(mr);
    return 0;
}

/* Returns what ibv_rereg_mr() does; the errno value is in the call. */
static int rereg(struct sim_frame *frame, struct sim_mr *mr, const struct request *request,
                 int flags, struct sim_call *call) {
    bool valid = flags != 0 && !(flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) && mr->has_memory;

    call->result = SIM_PROCEED;
    if (frame->features != 0)
        call->result = sim_frame_enter(frame, request->addr, request->length);
    if (call->result != SIM_PROCEED)
        return IBV_REREG_MR_ERR_INPUT;
    call->result = valid ? check(request) : EINVAL;
    if (call->result != 0)
        return IBV_REREG_MR_ERR_INPUT;
    call->result = change(mr, request, flags);
    call->succeeded = call->result == 0;
    return call->succeeded ? 0 : IBV_REREG_MR_ERR_CMD;
}

SIM_EXPORT int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr,
                            size_t length, int access) {
    struct sim_mr *mr = sim_mr(ibv);
    struct request request = {ibv->pd, ibv->addr, ibv->length, mr->iova, mr->access, true, -1};
    struct sim_frame frame;
    struct sim_call call;
    int code;

    sim_mr_claim(mr, "ibv_rereg_mr");
    sim_frame_begin(&frame, SIM_IBV_REREG_MR);
    if (flags & IBV_REREG_MR_CHANGE_PD)
        request.pd = pd;
    if (flags & IBV_REREG_MR_CHANGE_ACCESS)
        request.access = (uint32_t)access;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        request.addr = addr;
        request.length = length;
        request.iova = (uintptr_t)addr;
    }
    call = describe_call(SIM_IBV_REREG_MR, &request);
    call.mr = ibv;
    code = rereg(&frame, mr, &request, flags, &call);
    if (code != 0)
        sim_mr_unclaim(mr);
    if (frame.features != 0)
        sim_frame_leave(&frame, &call);
    sim_frame_end(&frame, code == 0);
    if (code != 0)
        errno = call.result;
    return code;
}

static void end(struct sim_thread *self, struct sim_mr *mr) {
    sim_unpin(&mr->pin);
    sim_mr_give(self, mr);
}

static int dereg_with_features(struct sim_frame *frame, struct sim_mr *mr) {
    struct sim_call call = {.symbol = SIM_IBV_DEREG_MR, .mr = &mr->ibv, .fd = -1};

    /* Claimed first: two calls at once for one region are a mistake, however they are ordered. */
    sim_mr_claim(mr, "ibv_dereg_mr");
    call.pd = mr->ibv.pd;
    call.addr = mr->ibv.addr;
    call.length = mr->ibv.length;
    call.iova = mr->iova;
    call.access = mr->access;
    call.result = sim_frame_enter(frame, call.addr, call.length);
    if (call.result == SIM_PROCEED) {
        sim_mr_retire(mr);
        end(frame->self, mr);
        call.result = 0;
        call.succeeded = 1;
    } else {
        sim_mr_unclaim(mr);
    }
    sim_frame_leave(frame, &call);
    return call.result;
}

SIM_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv) {
    struct sim_mr *mr = sim_mr(ibv);
    struct sim_frame frame;
    int err = 0;

    sim_frame_begin(&frame, SIM_IBV_DEREG_MR);
    if (SIM_LIKELY(frame.features == 0)) {
        sim_mr_claim_and_retire(mr, "ibv_dereg_mr");
        end(frame.self, mr);
    } else {
        err = dereg_with_features(&frame, mr);
    }
    sim_frame_end(&frame, err == 0);
    return err;
}

int sim_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                  struct ibv_sge *sges, uint32_t count) {
    struct sim_call call = {.symbol = SIM_IBV_ADVISE_MR, .pd = pd, .access = advice, .fd = -1};

    if (count > 0) {
        call.iova = sges[0].addr;
        call.length = sges[0].length;
    }
    call.begin_ns = sim_now_ns();
    if (!sim_get(&sim_settings.odp))
        call.result = EOPNOTSUPP;
    else if (count == 0 || (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH))
        call.result = EINVAL;
    for (uint32_t i = 0; i < count && call.result == 0; i++) {
        if (!sim_key_allows(pd, sges[i].lkey, sges[i].addr, sges[i].length, 0))
            call.result = ENOENT;
    }
    call.succeeded = call.result == 0;
    if (atomic_load_explicit(&sim_features, memory_order_relaxed) & SIM_FEATURE_RECORD)
        sim_record_call(&call);
    return call.result;
}
