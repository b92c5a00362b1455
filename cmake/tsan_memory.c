/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Rust's compiler calls these; a ThreadSanitizer runtime of GCC 12 or earlier
 * has them under their plain names only.
 */

#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int byte, size_t size);

void *__tsan_memcpy(void *to, const void *from, size_t size) {
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size) {
    return memmove(to, from, size);
}

void *__tsan_memset(void *to, int byte, size_t size) {
    return memset(to, byte, size);
}
