//! Short texts that take no memory: there may be none.

#![forbid(unsafe_code)]

use std::fmt;

/// Longer than any text of the library.
const ROOM: usize = 1024;

/// A text; what is beyond its room is left out.
pub struct Text {
    /// With room for the end of a line.
    bytes: [u8; ROOM + 1],
    length: usize,
}

impl Text {
    /// An empty one.
    pub fn new() -> Self {
        Self { bytes: [0; ROOM + 1], length: 0 }
    }

    /// What was written.
    pub fn as_str(&self) -> &str {
        // Only whole characters were.
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }

    /// The same with the end of a line.
    pub fn as_line(&mut self) -> &[u8] {
        self.bytes[self.length] = b'\n';
        &self.bytes[..=self.length]
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..ROOM];
        let fits = |&length: &usize| length <= room.len() && text.is_char_boundary(length);
        let kept = (0..=text.len()).rev().find(fits).unwrap_or(0);
        room[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        self.length += kept;
        if kept == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut text = Text::new();
        assert!(write!(text, "{}", "a".repeat(ROOM - 3)).is_ok());
        assert!(write!(text, "äö").is_err());
        assert!(text.as_str().ends_with("aä"));
        assert!(text.as_line().ends_with("aä\n".as_bytes()));
        assert_eq!(text.as_line().len(), ROOM);
    }
}
