/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Under libibverbs' fork support, the whole pages of a region are gone in a child. So a region that
 * shares its pages with other objects takes these along, as amr(7) says; one that has its pages for
 * itself does not, and nothing of libamr's own is ever on such a page. F38.
 */
#include "fork_support.h"
#include "process.h"

/* Of the app: static, on the heap, and behind half a page that is registered. */
static int object = 42;

static void *half_page;

static int reads_beside_region(void) {
    return *(volatile char *)((char *)half_page + PAGE / 2);
}

static int child_status(int (*body)(void)) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        exit_child(body());
    return wait_child(child);
}

static char *heap_object;

/* Everything of libamr that a child may use, and objects of the application. */
static int uses_everything_else(void) {
    struct amr_limits limits = {.size = sizeof(limits)};
    struct amr_wc wc = {.status = ENOMEM};
    char text[512];

    CHECK_EQ(object, 42);
    CHECK_EQ(heap_object[0], 'h');
    CHECK(amr_version()[0] != '\0');
    CHECK(amr_explain(&wc, text, sizeof(text)) > 0);
    CHECK_EQ(amr_query_limits(NULL, &limits), 0);
    CHECK(amr_default_engine() != NULL);
    CHECK_EQ(amr_destroy_cq(new_cq(NULL, 16)), 0);
    CHECK_EQ(amr_destroy_engine(new_engine(2, 16)), 0);
    return 0;
}

int main(void) {
    struct device device;
    struct ibv_mr *half, *whole;
    struct amr_cq *cq;
    char *pages;
    int status;

    begin_fork_support();
    device = open_device();
    cq = new_cq(NULL, 4);
    heap_object = (char *)malloc(64);
    CHECK(heap_object != NULL);
    heap_object[0] = 'h';
    pages = map_pages(4 * PAGE);
    memset(pages, 0, 4 * PAGE);
    half_page = pages + 2 * PAGE;
    whole = reg(cq, device.pd, pages, 2 * PAGE);
    CHECK_EQ(child_status(uses_everything_else), 0);

    CHECK_EQ(child_status(reads_beside_region), 0);
    half = reg(cq, device.pd, half_page, PAGE / 2);
    status = child_status(reads_beside_region);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK_EQ(child_status(uses_everything_else), 0);

    post(cq, dereg_wr(1, half));
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(child_status(reads_beside_region), 0);
    post(cq, dereg_wr(2, whole));
    CHECK_EQ(read_wc(cq).status, 0);
    CHECK_EQ(amr_drain(NULL, NULL, -1), 0);
    CHECK_EQ(amr_destroy_cq(cq), 0);
    close_device(device);
    free(heap_object);
    return 0;
}
