// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds libibverbs and gives the cdylib what makes it a shared library that C
//! programs can rely on.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    let libc = env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") || libc != "gnu" {
        println!("cargo::error=libamr needs Linux with glibc; other C libraries are not supported");
        return;
    }

    // Without a SONAME, a program would record the path that it was linked with.
    let major = env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo tells the version");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamr.so.{major}");
    // Its threads and thread-local destructors outlive a dlclose().
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    if let Some(folders) = folders_by_pkg_config() {
        for folder in folders {
            println!("cargo::rustc-link-search=native={folder}");
        }
    } else if !linker_finds_ibverbs() {
        println!(
            "cargo::error=libibverbs was not found: install libibverbs-dev (Debian, Ubuntu) \
             or rdma-core-devel (Fedora, RHEL, SUSE)"
        );
        return;
    }
    println!("cargo::rustc-link-lib=ibverbs");
}

/// The library folders that pkg-config names for libibverbs; `None` if
/// pkg-config or its description of libibverbs is missing.
fn folders_by_pkg_config() -> Option<Vec<String>> {
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_LIBDIR");
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| OsString::from("pkg-config"));
    let output = Command::new(program).args(["--libs-only-L", "libibverbs"]).output().ok()?;
    let flags = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(
        flags
            .split_whitespace()
            .filter_map(|flag| flag.strip_prefix("-L"))
            .map(String::from)
            .collect(),
    )
}

/// Whether the C compiler, which links for rustc, finds libibverbs by itself.
fn linker_finds_ibverbs() -> bool {
    let probe =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo tells OUT_DIR")).join("probe.so");
    Command::new("cc")
        .args(["-shared", "-nostdlib", "-o"])
        .arg(probe)
        .arg("-libverbs")
        .output()
        .is_ok_and(|output| output.status.success())
}
