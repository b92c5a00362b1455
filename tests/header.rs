//! The committed C header is what cbindgen makes of src/ffi.
//!
//! `scripts/header` runs this with `AMR_BLESS=1`, which writes the header.

use std::path::Path;

#[test]
fn committed_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for section in ["version", "single", "engine", "cq", "post", "info"] {
        builder = builder.with_src(root.join(format!("src/ffi/{section}.rs")));
    }
    builder.generate().expect("cbindgen reads src/ffi").write(&mut made);
    let made = String::from_utf8(made).expect("the header is UTF-8");

    let path = root.join("include/amr/amr.h");
    if std::env::var_os("AMR_BLESS").is_some() {
        std::fs::write(&path, &made).expect("include/amr/amr.h can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "include/amr/amr.h is out of date: run scripts/header");
}
