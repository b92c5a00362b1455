//! Files of `/proc` and `/sys`, line by line. Asks for no memory: there may be none.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read;

/// Gives the lines of a file to `each` until that has found something; `None`: the
/// file cannot be read. What a line has beyond the buffer, or beyond what is UTF-8,
/// is left out.
pub fn each_line<T>(path: &str, mut each: impl FnMut(&str) -> Option<T>) -> Option<Option<T>> {
    let mut file = File::open(path).ok()?;
    let mut buffer = [0; 8192];
    let mut filled = 0;
    // The line has been given already.
    let mut given = false;
    while let Ok(length @ 1..) = file.read(&mut buffer[filled..]) {
        filled += length;
        let mut begin = 0;
        while let Some(length) = buffer[begin..filled].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[begin..begin + length];
            begin += length + 1;
            let found = if std::mem::take(&mut given) { None } else { each(valid(line)) };
            if found.is_some() {
                return Some(found);
            }
        }
        if begin == 0 && filled == buffer.len() {
            let found =
                if std::mem::replace(&mut given, true) { None } else { each(valid(&buffer)) };
            if found.is_some() {
                return Some(found);
            }
            begin = filled;
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
    }
    Some(None)
}

/// The first line of a file that holds something.
pub fn find_line<T>(path: &str, each: impl FnMut(&str) -> Option<T>) -> Option<T> {
    each_line(path, each).flatten()
}

fn valid(line: &[u8]) -> &str {
    let length = std::str::from_utf8(line).map_or_else(|error| error.valid_up_to(), str::len);
    std::str::from_utf8(&line[..length]).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_comes_once() {
        let path = std::env::temp_dir().join(format!("amr-lines-{}", std::process::id()));
        let long = "b".repeat(20_000);
        let text = [b"a\n", long.as_bytes(), b"\nc \xe4 d\n", &long.as_bytes()[..8191], b"\ne\n"];
        std::fs::write(&path, text.concat()).unwrap();
        let mut lines = Vec::new();
        let found = each_line(path.to_str().unwrap(), |line| {
            lines.push(line.to_owned());
            (line == "e").then_some(())
        });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, Some(Some(())));
        assert!(lines.iter().map(String::len).eq([1, 8192, 2, 8191, 1]));
        assert_eq!(lines[2], "c ");
        assert_eq!(each_line("/nonexistent", |_| Some(())), None);
    }
}
