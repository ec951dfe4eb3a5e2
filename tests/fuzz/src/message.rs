//! An input as a message: lines of headers, an empty line, and the body.

use bytes::Bytes;

/// A message that the input says.
pub(crate) struct Message<'a> {
    /// Names, which are text, with values, which may be anything but a line's end.
    pub(crate) headers: Vec<(&'a str, &'a [u8])>,
    pub(crate) body: Bytes,
}

impl<'a> Message<'a> {
    /// Any input is one. A line without a colon, or with a name that is no text, says nothing.
    pub(crate) fn of(input: &'a [u8]) -> Message<'a> {
        let end = input.windows(2).position(|pair| pair == b"\n\n");
        let (head, body) = match end {
            Some(end) => (&input[..end], &input[end + 2..]),
            None => (input, &[][..]),
        };
        let header = |line: &'a [u8]| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            let value = &line[colon + 1..];
            Some((name, value.strip_prefix(b" ").unwrap_or(value)))
        };
        let headers = head.split(|byte| *byte == b'\n').filter_map(header).collect();
        Message { headers, body: Bytes::copy_from_slice(body) }
    }

    /// Takes out what is said beside the headers, under a name that begins with `@`.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.headers.iter().position(|(known, _)| *known == name)?;
        std::str::from_utf8(self.headers.remove(index).1).ok()
    }
}
