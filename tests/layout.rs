// SPDX-License-Identifier: MIT OR Apache-2.0

//! C and Rust see the same structures: a C program prints the size and place of
//! each field as the headers have them, and Rust says what it thinks.

#[path = "../src/verbs/builtin.rs"]
#[expect(dead_code, reason = "compared, not used")]
mod builtin;

use amr::ffi::{cq, engine, info, post};
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// What both sides say: a line for each structure and each of its fields.
struct Layouts {
    /// Statements of the C program.
    c: String,
    /// What it has to print.
    rust: String,
}

impl Layouts {
    fn add_type(&mut self, name: &str, size: usize) {
        writeln!(self.c, "printf(\"{name}: %zu\\n\", sizeof({name}));").expect("grows");
        writeln!(self.rust, "{name}: {size}").expect("grows");
    }

    fn add_field(&mut self, name: &str, field: &str, offset: usize, size: usize) {
        writeln!(
            self.c,
            "printf(\"{name}.{field}: %zu %zu\\n\", offsetof({name}, {field}), \
             sizeof((({name} *)0)->{field}));"
        )
        .expect("grows");
        writeln!(self.rust, "{name}.{field}: {offset} {size}").expect("grows");
    }
}

/// Fields that are not named do not compile; those after `;` are not compared.
macro_rules! structure {
    ($layouts:ident, $module:ident::$name:ident { $($field:ident),* $(; $other:ident)* }) => {{
        let name = concat!("struct ", stringify!($name));
        $layouts.add_type(name, size_of::<$module::$name>());
        $($layouts.add_field(
            name,
            stringify!($field),
            offset_of!($module::$name, $field),
            size_of_field(|s: &$module::$name| &raw const s.$field),
        );)*
        let _all_fields = |s: $module::$name| {
            let $module::$name { $($field: _,)* $($other: _)* } = s;
        };
    }};
}

fn size_of_field<S, F>(_: impl Fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

/// The functions of libibverbs with the types that src/verbs/builtin.rs gives them.
const PROTOTYPES: &str = "
    struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned) =
        ibv_reg_mr_iova2;
    int (*dereg_mr)(struct ibv_mr *) = ibv_dereg_mr;
    int (*query_device)(struct ibv_context *, struct ibv_device_attr *) = ibv_query_device;
    (void)reg_mr_iova2, (void)dereg_mr, (void)query_device;
";

#[test]
fn c_and_rust_see_the_same_structures() {
    let mut layouts = Layouts { c: String::new(), rust: String::new() };

    structure!(
        layouts,
        engine::amr_engine_attr { size, workers, queue_depth, cpus, flags, reserved }
    );
    structure!(layouts, post::amr_reg_mr { pd, addr, length, iova, access, reserved });
    structure!(layouts, post::amr_dereg_mr { mr });
    layouts.add_type("union amr_op", size_of::<post::amr_op>());
    structure!(layouts, post::amr_wr { wr_id, opcode, flags, op });
    structure!(
        layouts,
        cq::amr_wc {
            wr_id,
            opcode,
            status,
            diag,
            reserved0,
            mr,
            queued_ns,
            busy_ns,
            diag_arg,
            populate_ns
        }
    );
    structure!(
        layouts,
        info::amr_limits {
            size,
            memlock_soft,
            memlock_hard,
            pinned,
            locked,
            map_count,
            max_map_count,
            max_mr_size,
            max_mr,
            cap_ipc_lock,
            page_size
        }
    );
    structure!(
        layouts,
        info::amr_stats {
            size,
            submitted,
            completed,
            failed,
            cancelled,
            queued,
            running,
            registered_bytes,
            queue_ns_total,
            queue_ns_max,
            busy_ns_total,
            busy_ns_max,
            workers,
            queue_depth,
            populate_ns_total,
            populate_ns_max
        }
    );

    structure!(layouts, builtin::ibv_pd { context, handle });
    structure!(layouts, builtin::ibv_mr { context, pd, addr, length, handle, lkey, rkey });
    structure!(layouts, builtin::ibv_device_attr {
        fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id,
        hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr,
        max_pd, max_pkeys, local_ca_ack_delay, phys_port_cnt; rest
    });

    assert_eq!(run_c(&layouts.c), layouts.rust);
}

/// Compiles a C program with these statements in its main(), and returns what it prints.
fn run_c(statements: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let text = format!(
        "#include <amr/amr.h>\n#include <stdio.h>\n\
         int main(void) {{ {PROTOTYPES} {statements} return 0; }}\n"
    );
    std::fs::write(&source, text).expect("cargo made the folder");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("include"))
        .arg("-o")
        .args([&program, &source])
        .arg("-libverbs")
        .status()
        .expect("there is a C compiler");
    assert!(status.success(), "{} does not compile", source.display());
    let output = Command::new(program).output().expect("the program runs");
    String::from_utf8(output.stdout).expect("it prints text")
}
