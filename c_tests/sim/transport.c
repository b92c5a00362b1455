/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Data transfer between queue pairs of processes on one machine.
 *
 * Each queue pair listens on an abstract Unix socket that is named after its number. Two threads
 * serve it: the requester performs its send queue, one request after the other, over a connection
 * to the peer's socket; the responder answers the peer. A responder never sends requests, so no
 * circle of processes can wait for each other.
 */
#include "sim_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 64 << 10, /* data is copied in pieces of this size */
    PATIENCE_S = 10,  /* for the peer to be ready, or to post a receive */
    BACKLOG = 16,
    STACK_BYTES = 256 << 10,
};

struct wire_request {
    uint32_t source_qp;
    uint32_t opcode; /* enum ibv_wr_opcode */
    uint32_t solicited;
    uint32_t imm_data; /* network byte order, as in the work request */
    uint64_t length;
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint32_t rkey;
    uint32_t reserved;
    /* length bytes follow, if data goes to the peer */
};

/* The answer is one of these; to a read, as many as it takes for all data, or an error. */
struct wire_response {
    uint32_t status; /* enum ibv_wc_status, from the requester's point of view */
    uint32_t length; /* of the data that follows */
};

static bool sends_data(uint32_t opcode) {
    return opcode <= IBV_WR_SEND_WITH_IMM;
}

static bool has_imm(uint32_t opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool takes_receive(uint32_t opcode) {
    return opcode == IBV_WR_SEND || has_imm(opcode);
}

static bool is_atomic(uint32_t opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static size_t chunk_of(uint64_t length) {
    return length < CHUNK ? (size_t)length : CHUNK;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

static socklen_t make_address(struct sockaddr_un *address, uint32_t qp_num) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    /* The leading zero byte makes the name abstract: no file, gone with the last descriptor. */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                                        "amr-sim-qp-%06x", qp_num));
}

static bool write_all(int fd, const void *data, size_t length) {
    const char *place = data;

    while (length > 0) {
        ssize_t sent = send(fd, place, length, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        place += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t length) {
    char *place = data;

    while (length > 0) {
        ssize_t received = recv(fd, place, length, 0);

        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            return false;
        place += received;
        length -= (size_t)received;
    }
    return true;
}

/* Keeps the descriptor where sim_transport_stop() can wake its reader; false if it is too late. */
static bool publish_fd(struct sim_qp *qp, int *place, int fd) {
    bool closing;

    pthread_mutex_lock(&qp->lock);
    closing = qp->closing;
    if (!closing)
        *place = fd;
    pthread_mutex_unlock(&qp->lock);
    if (closing)
        close(fd);
    return !closing;
}

static void close_fd(struct sim_qp *qp, int *place) {
    pthread_mutex_lock(&qp->lock);
    if (*place >= 0)
        close(*place);
    *place = -1;
    pthread_mutex_unlock(&qp->lock);
}

/* ---- Requester ------------------------------------------------------------------------------- */

static bool connect_peer(struct sim_qp *qp, uint32_t dest_qp_num) {
    struct sockaddr_un address;
    socklen_t length = make_address(&address, dest_qp_num);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return false;
    /* Not waiting for a peer that does not accept: nothing could end that wait. */
    if (connect(fd, (struct sockaddr *)&address, length) != 0 || fcntl(fd, F_SETFL, 0) != 0) {
        close(fd);
        return false;
    }
    return publish_fd(qp, &qp->request_fd, fd);
}

static enum ibv_wc_status send_data(struct sim_qp *qp, const struct sim_send *send,
                                    struct sim_cursor *cursor, char *buffer) {
    if (send->inline_data != NULL)
        return write_all(qp->request_fd, send->inline_data, send->length) ? IBV_WC_SUCCESS
                                                                          : IBV_WC_RETRY_EXC_ERR;
    for (uint64_t left = send->length; left > 0;) {
        size_t part = chunk_of(left);

        if (!sim_sges_copy(cursor, buffer, part, false))
            return IBV_WC_LOC_PROT_ERR;
        if (!write_all(qp->request_fd, buffer, part))
            return IBV_WC_RETRY_EXC_ERR;
        left -= part;
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status receive_answer(struct sim_qp *qp, uint64_t expected,
                                         struct sim_cursor *cursor, char *buffer) {
    do {
        struct wire_response response;

        if (!read_all(qp->request_fd, &response, sizeof(response)))
            return IBV_WC_RETRY_EXC_ERR;
        if (response.status != IBV_WC_SUCCESS)
            return (enum ibv_wc_status)response.status;
        if (response.length > expected || response.length > CHUNK)
            return IBV_WC_BAD_RESP_ERR;
        if (!read_all(qp->request_fd, buffer, response.length))
            return IBV_WC_RETRY_EXC_ERR;
        if (!sim_sges_copy(cursor, buffer, response.length, true))
            return IBV_WC_LOC_PROT_ERR;
        expected -= response.length;
    } while (expected > 0);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status perform(struct sim_qp *qp, const struct sim_send *send,
                                  uint32_t dest_qp_num, char *buffer) {
    const struct ibv_send_wr *wr = &send->wr;
    struct sim_cursor cursor = {qp->ibv.pd, send->sges, wr->num_sge, 0, 0};
    bool atomic = is_atomic(wr->opcode);
    struct wire_request request = {
        .source_qp = qp->ibv.qp_num,
        .opcode = wr->opcode,
        .solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0,
        .imm_data = has_imm(wr->opcode) ? wr->imm_data : 0,
        .length = send->length,
        .remote_addr = atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr,
        .rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey,
        .compare_add = atomic ? wr->wr.atomic.compare_add : 0,
        .swap = atomic ? wr->wr.atomic.swap : 0,
    };
    uint64_t answer = sends_data(wr->opcode) ? 0 : send->length;
    enum ibv_wc_status status;

    if (send->length > SIM_MAX_MESSAGE || (atomic && send->length != sizeof(uint64_t)))
        return IBV_WC_LOC_LEN_ERR;
    if (send->inline_data == NULL &&
        !sim_sges_allow(&cursor, answer > 0 ? IBV_ACCESS_LOCAL_WRITE : 0))
        return IBV_WC_LOC_PROT_ERR;
    if (qp->request_fd < 0 && !connect_peer(qp, dest_qp_num))
        return IBV_WC_RETRY_EXC_ERR;
    if (!write_all(qp->request_fd, &request, sizeof(request)))
        return IBV_WC_RETRY_EXC_ERR;
    if (sends_data(wr->opcode)) {
        status = send_data(qp, send, &cursor, buffer);
        if (status != IBV_WC_SUCCESS)
            return status;
    }
    return receive_answer(qp, answer, &cursor, buffer);
}

/* The next send, taken off the queue; NULL at the end of the queue pair. */
static struct sim_send *next_send(struct sim_qp *qp, uint32_t *dest_qp_num) {
    struct sim_send *send = NULL;
    bool stale;

    pthread_mutex_lock(&qp->lock);
    while (!qp->closing && qp->sends == NULL)
        pthread_cond_wait(&qp->changed, &qp->lock);
    if (!qp->closing) {
        send = qp->sends;
        qp->sends = send->next;
        if (qp->sends == NULL)
            qp->sends_tail = &qp->sends;
    }
    *dest_qp_num = qp->attr.dest_qp_num;
    stale = qp->stale;
    qp->stale = false;
    pthread_mutex_unlock(&qp->lock);
    if (stale)
        close_fd(qp, &qp->request_fd);
    return send;
}

static void *requester(void *argument) {
    struct sim_qp *qp = argument;
    char *buffer = malloc(CHUNK);
    struct sim_send *send;
    uint32_t dest_qp_num;

    if (buffer == NULL)
        sim_abort_line("out of memory");
    while ((send = next_send(qp, &dest_qp_num)) != NULL) {
        enum ibv_wc_status status = perform(qp, send, dest_qp_num, buffer);

        /* A program that sees the failure may connect anew at once: everything is in order before
         * it sees it. */
        if (status != IBV_WC_SUCCESS)
            close_fd(qp, &qp->request_fd);
        pthread_mutex_lock(&qp->lock);
        qp->send_count--;
        if (!qp->closing)
            sim_send_complete(qp, send, status);
        if (status != IBV_WC_SUCCESS)
            sim_qp_fail_locked(qp);
        pthread_mutex_unlock(&qp->lock);
        free(send->inline_data);
        free(send);
    }
    free(buffer);
    return NULL;
}

/* ---- Responder ------------------------------------------------------------------------------- */

static bool answer(struct sim_qp *qp, enum ibv_wc_status status, const void *data,
                   uint32_t length) {
    struct wire_response response = {status, length};

    return write_all(qp->respond_fd, &response, sizeof(response)) &&
           write_all(qp->respond_fd, data, length);
}

/* A refusal puts this side into the error state too, as a reliable connection does. Before the
 * answer: a program that sees the failure may connect anew at once. */
static bool refuse(struct sim_qp *qp, enum ibv_wc_status status) {
    pthread_mutex_lock(&qp->lock);
    sim_qp_fail_locked(qp);
    pthread_mutex_unlock(&qp->lock);
    return answer(qp, status, NULL, 0);
}

static struct timespec patience(void) {
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return until;
}

/* A peer may be faster: waits until this side is ready to receive. */
static bool wait_ready(struct sim_qp *qp, uint32_t source_qp) {
    struct timespec until = patience();
    int err = 0;
    bool ready;

    pthread_mutex_lock(&qp->lock);
    while (!qp->closing && qp->ibv.state < IBV_QPS_RTR && err == 0)
        err = pthread_cond_timedwait(&qp->changed, &qp->lock, &until);
    ready = !qp->closing && (qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS) &&
            qp->attr.dest_qp_num == source_qp;
    pthread_mutex_unlock(&qp->lock);
    return ready;
}

static struct sim_recv *take_recv(struct sim_qp *qp) {
    struct timespec until = patience();
    struct sim_recv *recv;
    int err = 0;

    pthread_mutex_lock(&qp->lock);
    while (!qp->closing && qp->recvs == NULL && qp->ibv.state != IBV_QPS_ERR && err == 0)
        err = pthread_cond_timedwait(&qp->changed, &qp->lock, &until);
    recv = qp->closing ? NULL : qp->recvs;
    if (recv != NULL) {
        qp->recvs = recv->next;
        if (qp->recvs == NULL)
            qp->recvs_tail = &qp->recvs;
        qp->recv_count--;
    }
    pthread_mutex_unlock(&qp->lock);
    return recv;
}

static bool qp_allows(struct sim_qp *qp, uint32_t opcode) {
    uint32_t needed =
        is_atomic(opcode)            ? IBV_ACCESS_REMOTE_ATOMIC
        : opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
        : sends_data(opcode) && opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM
            ? IBV_ACCESS_REMOTE_WRITE
            : 0;
    bool allowed;

    pthread_mutex_lock(&qp->lock);
    allowed = (qp->attr.qp_access_flags & needed) == needed;
    pthread_mutex_unlock(&qp->lock);
    return allowed;
}

/* Where the data of a request goes: into a receive buffer, or to an address in a region. */
struct target {
    struct sim_cursor cursor;
    uint32_t rkey;
    uint64_t addr;
    bool is_recv;
};

static bool put(const struct sim_qp *qp, struct target *target, char *buffer, size_t length) {
    bool put;

    if (target->is_recv)
        return sim_sges_copy(&target->cursor, buffer, length, true);
    put = sim_key_copy(qp->ibv.pd, target->rkey, target->addr, buffer, length,
                       IBV_ACCESS_REMOTE_WRITE, true);
    target->addr += length;
    return put;
}

/* Reads all data of the request, and stores it as long as status allows. False: no connection. */
static bool take_data(struct sim_qp *qp, uint64_t length, struct target *target, char *buffer,
                      enum ibv_wc_status *status) {
    while (length > 0) {
        size_t part = chunk_of(length);

        if (!read_all(qp->respond_fd, buffer, part))
            return false;
        if (*status == IBV_WC_SUCCESS && !put(qp, target, buffer, part))
            *status = target->is_recv ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR;
        length -= part;
    }
    return true;
}

static uint64_t capacity_of(const struct sim_recv *recv) {
    uint64_t capacity = 0;

    for (int i = 0; i < recv->num_sge; i++)
        capacity += recv->sges[i].length;
    return capacity;
}

static void complete_recv(struct sim_qp *qp, const struct sim_recv *recv,
                          const struct wire_request *request, enum ibv_wc_status status) {
    bool is_send = request->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
    struct ibv_wc wc = {
        .wr_id = recv->wr_id,
        .status = status,
        .opcode = is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
        .byte_len = (uint32_t)request->length,
        .imm_data = request->imm_data,
        .wc_flags = has_imm(request->opcode) ? IBV_WC_WITH_IMM : 0,
        .qp_num = qp->ibv.qp_num,
        .src_qp = request->source_qp,
    };

    sim_cq_push(qp->ibv.recv_cq, &wc, request->solicited);
}

/* SEND and WRITE. The data is read even if it is refused, to find the next request. */
static bool serve_data(struct sim_qp *qp, const struct wire_request *request, char *buffer,
                       enum ibv_wc_status status) {
    struct target target = {
        .rkey = request->rkey,
        .addr = request->remote_addr,
        .is_recv = request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM,
    };
    enum ibv_wc_status local = IBV_WC_SUCCESS;
    struct sim_recv *recv = NULL;
    bool connected;

    if (status == IBV_WC_SUCCESS && takes_receive(request->opcode)) {
        recv = take_recv(qp);
        if (recv == NULL)
            status = IBV_WC_RNR_RETRY_EXC_ERR;
    }
    if (status == IBV_WC_SUCCESS && target.is_recv) {
        target.cursor = (struct sim_cursor){qp->ibv.pd, recv->sges, recv->num_sge, 0, 0};
        if (request->length > capacity_of(recv)) {
            local = IBV_WC_LOC_LEN_ERR;
            status = IBV_WC_REM_INV_REQ_ERR;
        } else if (!sim_sges_allow(&target.cursor, IBV_ACCESS_LOCAL_WRITE)) {
            local = IBV_WC_LOC_PROT_ERR;
            status = IBV_WC_REM_OP_ERR;
        }
    } else if (status == IBV_WC_SUCCESS && request->length > 0 &&
               !sim_key_allows(qp->ibv.pd, request->rkey, request->remote_addr, request->length,
                               IBV_ACCESS_REMOTE_WRITE)) {
        status = IBV_WC_REM_ACCESS_ERR;
    }
    connected = take_data(qp, request->length, &target, buffer, &status);
    if (local == IBV_WC_SUCCESS && (!connected || status != IBV_WC_SUCCESS))
        local = target.is_recv && connected ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR;
    pthread_mutex_lock(&qp->lock);
    if (recv != NULL)
        complete_recv(qp, recv, request, local);
    if (status != IBV_WC_SUCCESS)
        sim_qp_fail_locked(qp);
    pthread_mutex_unlock(&qp->lock);
    free(recv);
    return connected && answer(qp, status, NULL, 0);
}

static bool serve_read(struct sim_qp *qp, const struct wire_request *request, char *buffer,
                       enum ibv_wc_status status) {
    uint64_t addr = request->remote_addr;
    uint64_t left = request->length;

    if (status == IBV_WC_SUCCESS && left > 0 &&
        !sim_key_allows(qp->ibv.pd, request->rkey, addr, left, IBV_ACCESS_REMOTE_READ))
        status = IBV_WC_REM_ACCESS_ERR;
    do {
        size_t part = chunk_of(left);

        if (status == IBV_WC_SUCCESS && part > 0 &&
            !sim_key_copy(qp->ibv.pd, request->rkey, addr, buffer, part, IBV_ACCESS_REMOTE_READ,
                          false))
            status = IBV_WC_REM_ACCESS_ERR;
        if (status != IBV_WC_SUCCESS)
            return refuse(qp, status);
        if (!answer(qp, IBV_WC_SUCCESS, buffer, (uint32_t)part))
            return false;
        addr += part;
        left -= part;
    } while (left > 0);
    return true;
}

static bool serve_atomic(struct sim_qp *qp, const struct wire_request *request,
                         enum ibv_wc_status status) {
    uint64_t before = 0;

    if (status == IBV_WC_SUCCESS && request->remote_addr % sizeof(before) != 0)
        status = IBV_WC_REM_INV_REQ_ERR;
    else if (status == IBV_WC_SUCCESS &&
             !sim_key_atomic(qp->ibv.pd, request->rkey, request->remote_addr,
                             (enum ibv_wr_opcode)request->opcode, request->compare_add,
                             request->swap, &before))
        status = IBV_WC_REM_ACCESS_ERR;
    if (status != IBV_WC_SUCCESS)
        return refuse(qp, status);
    return answer(qp, IBV_WC_SUCCESS, &before, sizeof(before));
}

/* Serves one connection to its end. */
static void serve(struct sim_qp *qp, char *buffer) {
    struct wire_request request;

    while (read_all(qp->respond_fd, &request, sizeof(request))) {
        enum ibv_wc_status status = IBV_WC_SUCCESS;
        bool connected;

        if (!wait_ready(qp, request.source_qp))
            return;
        if (request.length > SIM_MAX_MESSAGE || !qp_allows(qp, request.opcode))
            status = IBV_WC_REM_INV_REQ_ERR;
        if (sends_data(request.opcode))
            connected = serve_data(qp, &request, buffer, status);
        else if (is_atomic(request.opcode))
            connected = serve_atomic(qp, &request, status);
        else
            connected = serve_read(qp, &request, buffer, status);
        if (!connected)
            return;
    }
}

static void *responder(void *argument) {
    struct sim_qp *qp = argument;
    char *buffer = malloc(CHUNK);
    int fd;

    if (buffer == NULL)
        sim_abort_line("out of memory");
    /* The listening socket is shut down at the end, which makes accept() fail. */
    while ((fd = accept4(qp->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0 || errno == EINTR ||
           errno == ECONNABORTED) {
        if (fd < 0)
            continue;
        if (!publish_fd(qp, &qp->respond_fd, fd))
            break;
        serve(qp, buffer);
        close_fd(qp, &qp->respond_fd);
    }
    free(buffer);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Takes a number that no queue pair on this machine has, by binding its socket. */
static int listen_somewhere(struct sim_qp *qp) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    for (;;) {
        struct sockaddr_un address;
        uint32_t number = 0;

        if (getrandom(&number, 3, 0) != 3 || number < 2) /* 0 and 1 are special */
            continue;
        if (bind(fd, (struct sockaddr *)&address, make_address(&address, number)) == 0) {
            qp->ibv.qp_num = qp->ibv.handle = number;
            break;
        }
        if (errno != EADDRINUSE) {
            int err = errno;

            close(fd);
            return err;
        }
    }
    if (listen(fd, BACKLOG) != 0) {
        int err = errno;

        close(fd);
        return err;
    }
    qp->listen_fd = fd;
    return 0;
}

/* The program's signals are not for these threads. */
static int start_thread(pthread_t *thread, void *(*body)(void *), struct sim_qp *qp,
                        const char *name) {
    sigset_t all, before;
    pthread_attr_t attr;
    int err;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(thread, &attr, body, qp);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (err == 0)
        pthread_setname_np(*thread, name);
    return err;
}

static void begin_closing(struct sim_qp *qp) {
    pthread_mutex_lock(&qp->lock);
    qp->closing = true;
    shutdown(qp->listen_fd, SHUT_RDWR);
    if (qp->request_fd >= 0)
        shutdown(qp->request_fd, SHUT_RDWR);
    if (qp->respond_fd >= 0)
        shutdown(qp->respond_fd, SHUT_RDWR);
    pthread_cond_broadcast(&qp->changed);
    pthread_mutex_unlock(&qp->lock);
}

void sim_transport_disconnect(struct sim_qp *qp) {
    qp->stale = true;
    if (qp->respond_fd >= 0)
        shutdown(qp->respond_fd, SHUT_RDWR);
}

int sim_transport_start(struct sim_qp *qp) {
    int err;

    qp->request_fd = qp->respond_fd = -1;
    err = listen_somewhere(qp);
    if (err != 0)
        return err;
    err = start_thread(&qp->responder, responder, qp, "sim-responder");
    if (err != 0) {
        close(qp->listen_fd);
        return err;
    }
    err = start_thread(&qp->requester, requester, qp, "sim-requester");
    if (err != 0) {
        begin_closing(qp);
        pthread_join(qp->responder, NULL);
        close(qp->listen_fd);
    }
    return err;
}

void sim_transport_stop(struct sim_qp *qp) {
    begin_closing(qp);
    pthread_join(qp->requester, NULL);
    pthread_join(qp->responder, NULL);
    close_fd(qp, &qp->request_fd);
    close_fd(qp, &qp->respond_fd);
    close(qp->listen_fd);
}
