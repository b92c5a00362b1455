/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The header's version, its packed number, and the library's are one. */
#include "check.h"

#include <amr/amr.h>

#if AMR_VERSION_NUMBER < 1000
#error "AMR_VERSION_NUMBER must work in the preprocessor"
#endif

int main(void) {
    char text[32];

    snprintf(text, sizeof(text), "%d.%d.%d", AMR_VERSION_MAJOR, AMR_VERSION_MINOR,
             AMR_VERSION_PATCH);
    CHECK_STR(amr_version(), text);
    CHECK(amr_version() == amr_version());

    /* Unpacked the other way round. */
    CHECK_EQ(AMR_VERSION_NUMBER / 1000000, AMR_VERSION_MAJOR);
    CHECK_EQ(AMR_VERSION_NUMBER / 1000 % 1000, AMR_VERSION_MINOR);
    CHECK_EQ(AMR_VERSION_NUMBER % 1000, AMR_VERSION_PATCH);
    return 0;
}
